"""The averaged model on disk as safetensors: whole or not at all, the previous file kept.

The file holds every name of the model's ``state_dict``, tied weights under each of their names, so it loads with
``model.load_state_dict(safetensors.torch.load_file(path))``. The format is eight bytes of length, a JSON header and
the tensors' bytes one behind the other; it is written here by hand because the library's own writers want a second
copy of the model in memory and do not flush it to the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from flodl_planes.plane.layout import MEANS, WIDTHS
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import TensorSpec

NAME = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"


def write(
    folder: Path,
    tensors: Sequence[TensorSpec],
    offsets: Sequence[int],
    average: npt.NDArray[np.uint8],
    metadata: Mapping[str, str],
) -> Path:
    """Write ``folder/checkpoint.safetensors``; the file that stood there becomes ``checkpoint.previous.safetensors``.

    `average` is the flat live buffer, shape (total_bytes,), uint8; `offsets` says where in it each of `tensors`
    begins. Raises Broken (checkpoint-failed) when the disk does not take it; the file that stood there is then
    untouched.
    """
    path = folder / NAME
    part = folder / f".{NAME}.part"
    try:
        with part.open("wb") as file:
            _write(file, tensors, offsets, average, metadata)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            previous = folder / PREVIOUS
            previous.unlink(missing_ok=True)
            os.link(path, previous)  # and not a rename: at no moment is there no checkpoint
        part.replace(path)
        _sync_folder(folder)
    except OSError as err:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        size = f"{average.nbytes / 1e6:,.0f} MB are needed"
        raise Broken(
            "checkpoint-failed",
            f"cannot write {path}",
            err.strerror or str(err),
            f"{size}; look at the disk of {folder}",
        ) from None
    return path


def _write(
    file: BinaryIO,
    tensors: Sequence[TensorSpec],
    offsets: Sequence[int],
    average: npt.NDArray[np.uint8],
    metadata: Mapping[str, str],
) -> None:
    entries: list[tuple[str, TensorSpec, int, int]] = []
    for spec, offset in zip(tensors, offsets, strict=True):
        nbytes = prod(spec.shape) * (MEANS[spec.dtype][0] if spec.dtype in MEANS else WIDTHS[spec.dtype])
        entries += [(name, spec, offset, nbytes) for name in (spec.name, *spec.ties)]
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name, spec, _, nbytes in entries:
        header[name] = {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the data to 8 bytes
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for _, _, offset, nbytes in entries:
        file.write(average[offset : offset + nbytes].data)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

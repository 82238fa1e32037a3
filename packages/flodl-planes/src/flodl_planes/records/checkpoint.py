"""The averaged model on disk as safetensors: whole or not at all, the previous file kept.

The file holds every name of the model's ``state_dict``, tied weights under each of their names, so it loads with
``model.load_state_dict(safetensors.torch.load_file(path))``; its metadata holds the cursor. What belongs beside it
(optimizer and random streams, the hub's outer optimizer) lies in files of their own that the cursor names: they are
written first and never written to again, so that the one rename of the model's file makes all of it the newest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flodl_planes.records import cursor as cursors
from flodl_planes.records import tensor_file
from flodl_wire.checkpoints import NAME, PREVIOUS, open_file
from flodl_wire.faults import Broken, Fault
from flodl_wire.plane_messages import TensorSpec

STATE = "checkpoint.state-{}.safetensors"  # of a round
OUTER = "checkpoint.outer-{}.safetensors"

Bytes = npt.NDArray[np.uint8]


def write(
    folder: Path,
    tensors: Sequence[TensorSpec],
    offsets: Sequence[int],
    average: Bytes,
    metadata: Mapping[str, str],
) -> Path:
    """Write ``folder/checkpoint.safetensors``; the file that stood there becomes ``checkpoint.previous.safetensors``.

    `average` is the flat live buffer, shape (total_bytes,), uint8; `offsets` says where in it each of `tensors`
    begins. Raises Broken (checkpoint-failed) when the disk does not take it; the file that stood there is then
    untouched.
    """
    places = [
        (name, spec, offset) for spec, offset in zip(tensors, offsets, strict=True) for name in (spec.name, *spec.ties)
    ]
    header = tensor_file.write_header([(name, spec.dtype, spec.shape) for name, spec, _ in places], metadata)
    pieces = [average[offset : offset + _nbytes(spec)].data for _, spec, offset in places]
    path = folder / NAME
    with _told(path, average.nbytes):
        part = _write_part(path, [header, *pieces])
        try:
            if path.exists():
                previous = folder / PREVIOUS
                previous.unlink(missing_ok=True)
                os.link(path, previous)  # and not a rename: at no moment is there no checkpoint
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        _sync_folder(folder)
    return path


def write_beside(folder: Path, name: str, data: Iterable[Any], nbytes: int) -> None:
    """One of the files that belong beside it, whole, from its pieces. Raises Broken (checkpoint-failed)."""
    path = folder / name
    with _told(path, nbytes):
        _write_part(path, data).replace(path)


def write_outer(folder: Path, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """The hub's outer optimizer: arrays of float32 or float64, by name. Raises Broken (checkpoint-failed)."""
    kinds = {"float32": "F32", "float64": "F64", "uint8": "U8", "int64": "I64"}
    listed = [(key, kinds[array.dtype.name], array.shape) for key, array in arrays.items()]
    pieces = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values()]
    write_beside(folder, name, [tensor_file.write_header(listed, {}), *pieces], sum(map(len, pieces)))


def read_outer(path: Path) -> dict[str, npt.NDArray[Any]]:
    """What `write_outer` wrote. Raises Broken (bad-file)."""
    kinds: dict[str, Any] = {"F32": np.float32, "F64": np.float64, "U8": np.uint8, "I64": np.int64}
    with open_file(path) as file:
        header = tensor_file.read_header(file.fileno(), str(path))
        found = {}
        for name, entry in header.entries.items():
            if entry.dtype not in kinds:
                raise Broken("bad-file", f"cannot use {path}", f"its {name} is of dtype {entry.dtype}")
            array = np.empty(entry.shape, kinds[entry.dtype])
            _fill(array.reshape(-1).view(np.uint8), file.fileno(), header.data + entry.start, path)
            found[name] = array
    return found


def tidy(folder: Path) -> None:
    """Remove what no checkpoint of the folder names any more. Never raises."""
    named = set()
    for name in (NAME, PREVIOUS):
        with contextlib.suppress(Fault, OSError):
            cursor = cursors.decode(read(folder / name).metadata, name)
            named |= {cursor.state_file, cursor.outer_file}
    for pattern in (STATE, OUTER):
        for path in folder.glob(pattern.format("*")):
            if path.name not in named:
                with contextlib.suppress(OSError):
                    path.unlink()


def read(path: Path) -> tensor_file.Header:
    """What a file holds. Raises Broken (bad-file)."""
    with open_file(path) as file:
        return tensor_file.read_header(file.fileno(), str(path))


def load(path: Path, tensors: Sequence[TensorSpec], offsets: Sequence[int], into: Bytes) -> None:
    """The file's tensors to their places in a live buffer. Raises Broken: bad-file, or wrong-model naming the first
    tensor that the file and `tensors` do not have alike.
    """
    with open_file(path) as file:
        header = tensor_file.read_header(file.fileno(), str(path))
        fault = misfit(header, tensors, path)
        if fault:
            raise fault
        for spec, offset in zip(tensors, offsets, strict=True):
            at = header.data + header.entries[spec.name].start
            _fill(into[offset : offset + _nbytes(spec)], file.fileno(), at, path)


def _fill(room: Bytes, descriptor: int, at: int, path: Path) -> None:
    """`room` from the file's bytes at `at`, in as many reads as it takes: Linux gives 2 GB at a time."""
    view = memoryview(room)  # type: ignore[arg-type]
    while view:
        count = os.preadv(descriptor, [view], at)
        if not count:
            raise Broken("bad-file", f"cannot use {path}", "it is cut short")
        view, at = view[count:], at + count


def misfit(header: tensor_file.Header, tensors: Sequence[TensorSpec], path: Path) -> Fault | None:
    """The first difference between a file and a model, as wrong-model; None when there is none."""
    missing = dict(header.entries)
    for spec in tensors:
        for name in (spec.name, *spec.ties):
            entry = missing.pop(name, None)
            here = f"{name} ({spec.dtype} {_shape(spec.shape)})"
            if entry is None:
                return _wrong(path, f"it has no {here}")
            if (entry.dtype, entry.shape) != (spec.dtype, list(spec.shape)):
                return _wrong(path, f"its {name} is {entry.dtype} {_shape(entry.shape)}, the script's model has {here}")
    if missing:
        name, entry = next(iter(missing.items()))
        return _wrong(path, f"it has {name} ({entry.dtype} {_shape(entry.shape)}), which the script's model lacks")
    return None


def _wrong(path: Path, why: str) -> Fault:
    fix = "build the model that was saved, or begin anew without resume"
    return Broken("wrong-model", f"cannot resume from {path}: it holds another model", why, fix)


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _nbytes(spec: TensorSpec) -> int:
    return prod(spec.shape) * tensor_file.width(spec.dtype)


@contextlib.contextmanager
def _told(path: Path, nbytes: int) -> Any:
    try:
        yield
    except OSError as err:
        raise Broken(
            "checkpoint-failed",
            f"cannot write {path}",
            err.strerror or str(err),
            f"{-(-nbytes // 1_000_000):,} MB are needed; look at the disk of {path.parent}",
        ) from None


def _write_part(path: Path, pieces: Iterable[Any]) -> Path:
    """All of it beside `path`, on the disk; half of it is of no use, and its room is."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    return part


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

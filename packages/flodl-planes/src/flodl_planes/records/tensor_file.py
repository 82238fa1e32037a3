"""The safetensors format, by hand: eight bytes of length, a JSON header, the tensors' bytes one behind the other.

Written here because the library's writers want a second copy of everything in memory and do not flush it to the disk;
read here because a file that was cut short, or is none at all, must cost a sentence and never memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from flodl_planes.plane.layout import MEANS, WIDTHS
from flodl_wire import checkpoints
from flodl_wire.faults import Broken


class Entry(NamedTuple):
    """One tensor in a file; `start` counts from the first byte behind the header."""

    dtype: str
    shape: list[int]
    start: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """What a file holds. `data`: where in the file its tensors' bytes begin."""

    metadata: dict[str, str]
    entries: dict[str, Entry]
    data: int


def width(dtype: str) -> int:
    """Bytes of an element. Raises KeyError for a dtype we do not know."""
    return MEANS[dtype][0] if dtype in MEANS else WIDTHS[dtype]


def write_header(tensors: Sequence[tuple[str, str, Sequence[int]]], metadata: Mapping[str, str]) -> bytes:
    """The bytes in front of the data of these tensors (name, dtype, shape), which follow in this order without gaps."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name, dtype, shape in tensors:
        nbytes = prod(shape) * width(dtype)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the data to 8 bytes
    return len(text).to_bytes(8, "little") + text


def read_header(descriptor: int, name: str) -> Header:
    """The header of the open file `descriptor`; `name` is for the error. Raises Broken (bad-file) for one that is cut
    short or is no safetensors file.
    """
    raw, data = checkpoints.read_header(descriptor, name)
    try:
        metadata = {str(key): str(value) for key, value in raw.pop("__metadata__", {}).items()}
        entries = {}
        for key, found in raw.items():
            start, stop = found["data_offsets"]
            entry = Entry(found["dtype"], list(found["shape"]), start, stop - start)
            if prod(entry.shape) * width(entry.dtype) != entry.nbytes or start < 0:
                raise _bad(name, f"its tensor {key} has {entry.nbytes} bytes for {entry.dtype} {entry.shape}")
            entries[str(key)] = entry
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        raise _bad(name, f"its header cannot be read ({type(err).__name__}: {err})"[:200]) from None
    return Header(metadata, entries, data)


def _bad(name: str, why: str) -> Broken:
    return Broken("bad-file", f"cannot use {name}", why)

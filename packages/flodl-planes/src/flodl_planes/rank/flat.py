"""A flat buffer's bytes as torch tensors, and torch's dtypes by the names that they have on the wire and in files."""

from __future__ import annotations

from typing import Any

import torch

from flodl_planes.plane.layout import MEANS
from flodl_wire.plane_messages import Section

DTYPES: dict[str, torch.dtype] = {
    "F32": torch.float32,
    "F64": torch.float64,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "C128": torch.complex128,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
AVERAGED = tuple(DTYPES[name] for name in MEANS)  # any other dtype is taken from one rank


def piece(flat: Any, dtype: torch.dtype, offset: int, elements: int) -> torch.Tensor:
    """So many `elements` from byte `offset` on, as a view. `flat`: memory of the processor, or a tensor of bytes, which
    may lie on a device. Of memory each is a storage of its own.
    """
    if elements == 0:
        return torch.empty(0, dtype=dtype)
    if isinstance(flat, torch.Tensor):
        return flat[offset : offset + elements * dtype.itemsize].view(dtype)
    return torch.frombuffer(flat, dtype=dtype, count=elements, offset=offset)


def section_of(flat: Any, section: Section) -> torch.Tensor:
    """The section's elements; raw bytes where it is none that is averaged."""
    return piece(flat, DTYPES[section.dtype], section.offset, section.elements)


def summed_in(part: torch.Tensor) -> torch.dtype:
    """The dtype in which sums over `part` are made: half precision in float32."""
    return torch.float64 if part.dtype is torch.float64 else torch.float32

"""Where every tensor of a model lies in one flat buffer, and how that buffer is cut into chunks (docs/protocol.md,
C-3). Pure.

Two layouts follow from the same list of tensors. The *live* layout holds the model as the rank computes with it;
sections of one dtype each, 64-aligned: F32, F64, BF16, F16, averaged, and last the raw bytes of everything else, taken
from one rank. The *sum* layout holds what travels while an average is being made: half precision is summed in float32,
and each section starts on a chunk of its own, so that chunk `c` of `CHUNK_BYTES` lies at byte ``c * CHUNK_BYTES`` and
never spans two dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from flodl_wire.faults import Broken, Refused
from flodl_wire.plane_messages import CHUNK_BYTES, Section, TensorSpec

ALIGN = 64  # bytes: a cache line, and enough for every vector unit
TAKE_ALIGN = 8  # bytes between tensors of the take section: the widest dtype there
MEAN = "mean"
TAKE = "take"

# dtype → (bytes of an element in live, in sum); the order is the order of the sections
MEANS: dict[str, tuple[int, int]] = {"F32": (4, 4), "F64": (8, 8), "BF16": (2, 4), "F16": (2, 4)}
WIDTHS = {
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
    "F8_E4M3": 1, "F8_E5M2": 1, "C64": 8, "C128": 16,
}  # fmt: skip


class Chunk(NamedTuple):
    """One piece of the flat buffer: the unit of summing and sending. Offsets and lengths in bytes."""

    dtype: str
    op: str  # mean | take
    elements: int
    live_offset: int
    live_bytes: int
    sum_offset: int
    sum_bytes: int


class Layout:
    """`offsets[i]`: byte offset in the live buffer of the i-th tensor (none when made from sections)."""

    def __init__(self, sections: list[Section], offsets: list[int]) -> None:
        self.sections = sections
        self.offsets = offsets
        self.chunks = list(_chunks(sections))
        self.total_bytes = max((s.offset + s.elements * live_width(s) for s in sections), default=0)
        self.sum_bytes = max((c.sum_offset + c.sum_bytes for c in self.chunks), default=0)

    @classmethod
    def of_sections(cls, sections: list[Section]) -> Layout:
        """The layout that somebody else planned. Raises Broken when it breaks the rules: it came over a socket."""
        end = 0
        for section in sections:
            known = section.dtype in MEANS if section.op == MEAN else section.op == TAKE and section.dtype == "U8"
            if not known or section.elements <= 0 or section.offset % ALIGN or section.offset < end:
                raise Broken(
                    "bad-layout",
                    "cannot use a rank's layout",
                    f"its section {section.dtype} {section.op} at byte {section.offset} breaks rule C-3",
                    "bring every host to the same release",
                )
            end = section.offset + section.elements * live_width(section)
        return cls(list(sections), [])


def live_width(section: Section) -> int:
    """Bytes of one element in the live buffer."""
    return MEANS[section.dtype][0] if section.op == MEAN else 1


def lay_out(tensors: Iterable[TensorSpec]) -> Layout:
    """The layout of a model; `tensors` in state_dict order, tied ones once. Raises Refused for a dtype that cannot be
    averaged.
    """
    tensors = list(tensors)
    offsets = [0] * len(tensors)
    sections: list[Section] = []
    end = 0
    for dtype, (width, _) in MEANS.items():
        start = at = _up(end, ALIGN)
        for index, tensor in enumerate(tensors):
            if tensor.dtype == dtype:
                offsets[index] = at
                at += prod(tensor.shape) * width
        if at > start:
            sections.append(Section(dtype, (at - start) // width, start, MEAN))
            end = at
    start = at = _up(end, ALIGN)
    for index, tensor in enumerate(tensors):
        if tensor.dtype not in MEANS:
            at = _up(at, TAKE_ALIGN)
            offsets[index] = at
            at += prod(tensor.shape) * _take_width(tensor)
    if at > start:
        sections.append(Section("U8", at - start, start, TAKE))
    return Layout(sections, offsets)


def _take_width(tensor: TensorSpec) -> int:
    width = WIDTHS.get(tensor.dtype)
    if width is None:
        raise Refused("bad-dtype", f"cannot train {tensor.name}", f"its dtype {tensor.dtype} is unknown here")
    if tensor.kind == "param" and tensor.dtype.startswith("C"):
        raise Refused(
            "bad-dtype",
            f"cannot average the parameter {tensor.name}",
            f"it is complex ({tensor.dtype})",
            "keep it as two real parameters (torch.view_as_complex inside forward)",
        )
    return width


def _chunks(sections: list[Section]) -> Iterable[Chunk]:
    start = 0  # of the section, in the sum layout
    for section in sections:
        live, summed = MEANS[section.dtype] if section.op == MEAN else (1, 1)
        per_chunk = CHUNK_BYTES // summed
        for first in range(0, section.elements, per_chunk):
            count = min(per_chunk, section.elements - first)
            yield Chunk(
                section.dtype,
                section.op,
                count,
                section.offset + first * live,
                count * live,
                start + first * summed,
                count * summed,
            )
        start = _up(start + section.elements * summed, CHUNK_BYTES)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step

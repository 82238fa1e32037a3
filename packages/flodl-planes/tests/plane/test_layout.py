"""The flat layout (C-3): the vector worked by hand, the rules as properties, and what is refused."""

from __future__ import annotations

import json
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_planes.plane.layout import ALIGN, MEANS, TAKE, WIDTHS, Layout, lay_out
from flodl_wire.faults import Broken, Refused
from flodl_wire.plane_messages import CHUNK_BYTES, Section, TensorSpec

VECTOR = Path(__file__).parents[4] / "docs" / "vectors" / "flat_layout.json"
REAL = [name for name in WIDTHS if not name.startswith("C")]


def width(dtype: str) -> int:
    return MEANS[dtype][0] if dtype in MEANS else WIDTHS[dtype]


tensor_lists = st.lists(
    st.builds(
        TensorSpec,
        name=st.just("t"),
        shape=st.lists(st.integers(0, 700), max_size=2),
        dtype=st.sampled_from([*MEANS, *REAL]),
        kind=st.sampled_from(["param", "buffer"]),
    ),
    max_size=12,
)


@pytest.mark.skipif(not VECTOR.exists(), reason="docs/ is not here: the package stands alone")
def test_the_layout_worked_by_hand_is_ours() -> None:
    vector = json.loads(VECTOR.read_text())
    tensors = [TensorSpec(t["name"], t["shape"], t["dtype"], t["kind"]) for t in vector["tensors"]]
    assert lay_out(tensors).offsets == [t["offset"] for t in vector["tensors"]]


@settings(max_examples=60, deadline=None)
@given(tensor_lists)
def test_every_tensor_has_its_own_bytes_aligned_to_its_element(tensors: list[TensorSpec]) -> None:
    layout = lay_out(tensors)
    spans = sorted(
        (offset, offset + prod(t.shape) * width(t.dtype)) for t, offset in zip(tensors, layout.offsets, strict=True)
    )
    for tensor, offset in zip(tensors, layout.offsets, strict=True):
        assert offset % min(width(tensor.dtype), 8) == 0
    filled = [(start, end) for start, end in spans if end > start]
    for (_, end), (start, _) in pairwise(filled):
        assert end <= start
    assert all(end <= layout.total_bytes for _, end in filled)


@settings(max_examples=60, deadline=None)
@given(tensor_lists)
def test_chunks_cover_every_section_once_in_order_and_never_span_two(tensors: list[TensorSpec]) -> None:
    layout = lay_out(tensors)
    at: dict[int, int] = {}
    for number, chunk in enumerate(layout.chunks):
        section = next(s for s in reversed(layout.sections) if s.offset <= chunk.live_offset)
        assert (section.dtype, section.op) == (chunk.dtype, chunk.op)
        assert chunk.live_offset == at.setdefault(section.offset, section.offset)
        assert chunk.sum_offset == number * CHUNK_BYTES and 0 < chunk.sum_bytes <= CHUNK_BYTES
        at[section.offset] += chunk.live_bytes
    for section in layout.sections:
        size = section.elements * (1 if section.op == TAKE else MEANS[section.dtype][0])
        assert at[section.offset] == section.offset + size
        assert section.offset % ALIGN == 0


@settings(max_examples=30, deadline=None)
@given(tensor_lists)
def test_sections_alone_give_the_same_layout(tensors: list[TensorSpec]) -> None:
    ours = lay_out(tensors)
    theirs = Layout.of_sections(ours.sections)
    assert (theirs.chunks, theirs.total_bytes, theirs.sum_bytes) == (ours.chunks, ours.total_bytes, ours.sum_bytes)


def test_half_precision_takes_twice_the_room_while_it_is_summed() -> None:
    layout = lay_out([TensorSpec("w", [CHUNK_BYTES], "BF16", "param")])
    assert [(c.live_bytes, c.sum_bytes) for c in layout.chunks] == [(CHUNK_BYTES // 2, CHUNK_BYTES)] * 4


def test_no_tensor_no_chunk_no_byte() -> None:
    layout = lay_out([])
    assert (layout.sections, layout.chunks, layout.total_bytes, layout.sum_bytes) == ([], [], 0, 0)


@pytest.mark.parametrize(
    "section",
    [
        Section("F32", 10, 1, "mean"),
        Section("F32", -5, 0, "mean"),
        Section("I64", 10, 0, "mean"),
        Section("F32", 10, 0, "take"),
        Section("F32", 10, 0, "sum"),
    ],
)
def test_sections_that_break_the_rules_are_refused(section: Section) -> None:
    with pytest.raises(Broken, match="C-3"):
        Layout.of_sections([section])


def test_overlapping_sections_are_refused() -> None:
    with pytest.raises(Broken):
        Layout.of_sections([Section("F32", 100, 0, "mean"), Section("F64", 100, 64, "mean")])


@pytest.mark.parametrize(("dtype", "why"), [("C64", "complex"), ("F4", "unknown")])
def test_a_parameter_that_cannot_be_averaged_is_refused_by_name(dtype: str, why: str) -> None:
    with pytest.raises(Refused, match=f"head.weight.*{why}"):
        lay_out([TensorSpec("head.weight", [4], dtype, "param")])


def test_a_complex_buffer_is_taken_from_the_leader() -> None:
    specs: list[Any] = [TensorSpec("rope", [4], "C64", "buffer")]
    assert lay_out(specs).sections == [Section("U8", 32, 0, "take")]

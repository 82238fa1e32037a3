"""How floats travel: sizes, what is lost, and that both ends mean the same by it (C-30 to C-32)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from flodl_planes.plane.consensus import Applier, Consensus, Feedback
from flodl_planes.plane.encoding import BLOCK, Encoder, compressed, encoded_bytes
from flodl_planes.plane.layout import lay_out
from flodl_wire.plane_messages import CHUNK_BYTES, TensorSpec

VECTOR = Path(__file__).parents[4] / "docs" / "vectors" / "encoded_chunks.json"


def there_and_back(wire: str, values: np.ndarray) -> np.ndarray:
    encoder, out = Encoder(), np.empty_like(values)
    encoded = np.empty(encoded_bytes(wire, values.size), np.uint8)
    with np.errstate(all="ignore"):
        encoder.encode(wire, values, encoded)
        Encoder().decode(wire, encoded, out)
    return out


def unrolled(runs: list[list[float]]) -> np.ndarray:
    return np.concatenate([np.full(int(count), value, np.float32) for value, count in runs])


@pytest.mark.skipif(not VECTOR.exists(), reason="docs/ is not here: the package stands alone")
def test_the_encodings_worked_by_hand_are_ours() -> None:
    for case in json.loads(VECTOR.read_text())["cases"]:
        values, decoded = (unrolled(case[name]) for name in ("values", "decoded"))
        encoded = np.empty(encoded_bytes(case["wire"], values.size), np.uint8)
        Encoder().encode(case["wire"], values, encoded)
        assert encoded.tobytes().hex() == case["encoded"]
        np.testing.assert_array_equal(there_and_back(case["wire"], values), decoded)


def test_a_chunk_of_int8_is_a_quarter_and_of_bf16_a_half() -> None:
    elements = CHUNK_BYTES // 4
    assert encoded_bytes("bf16", elements) == 0.5 * CHUNK_BYTES
    assert 0.25 * CHUNK_BYTES < encoded_bytes("int8", elements) < 0.253 * CHUNK_BYTES
    assert encoded_bytes("int8", 3) == 3 + 4


def test_only_what_is_summed_in_float32_is_encoded() -> None:
    kinds = ("F32", "F64", "BF16", "F16", "I64")
    layout = lay_out([TensorSpec("t", [3], kind, "buffer") for kind in kinds])
    encoded = [chunk.dtype for chunk in layout.chunks if compressed("int8", chunk)]
    assert encoded == ["F32", "BF16", "F16"]
    assert not any(compressed("float32", chunk) for chunk in layout.chunks)


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(np.float32, st.integers(1, 3 * BLOCK), elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False))
)
def test_int8_is_off_by_half_a_step_of_its_block_at_most(values: np.ndarray) -> None:
    back = there_and_back("int8", values)
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        step = np.abs(block).max() / 127
        assert np.abs(back[start : start + BLOCK] - block).max() <= 0.5001 * step + 1e-30


@settings(max_examples=60, deadline=None)
@given(arrays.arrays(np.float32, st.integers(1, 600), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_bf16_keeps_eight_bits_of_every_element(values: np.ndarray) -> None:
    back = there_and_back("bf16", values)
    assert (np.abs(back - values) <= np.abs(values) * 2.0**-8 + 1e-38).all()


@pytest.mark.parametrize("wire", ["bf16", "int8"])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_arrives_as_a_number(wire: str, broken: float) -> None:
    values = np.ones(2 * BLOCK + 5, np.float32)
    values[3] = broken
    back = there_and_back(wire, values)
    assert not np.isfinite(back[3])
    assert np.isfinite(back[BLOCK:]).all(), "it stays in its block"


def test_a_block_of_next_to_nothing_is_zeros_and_not_infinities() -> None:
    for value in (0.0, 1e-38, -1e-40):
        assert (there_and_back("int8", np.full(BLOCK, value, np.float32)) == 0).all()


@pytest.mark.parametrize("wire", ["bf16", "int8"])
def test_what_one_encoding_loses_the_next_ones_say(wire: str) -> None:
    """One element of a block moves a thousandth of its neighbour: alone it would be rounded away for ever."""
    layout = lay_out([TensorSpec("w", [BLOCK], "F32", "param")])
    (chunk,) = layout.chunks
    feedback, out = Feedback(layout), np.empty(encoded_bytes(wire, BLOCK), np.uint8)
    step = np.full(BLOCK, 1e-3, np.float32)
    step[0] = 1.0
    said = np.zeros(BLOCK, np.float64)
    for _ in range(400):
        said += feedback.encode(wire, chunk, step.copy(), out)
        feedback.commit()
    np.testing.assert_allclose(said, 400 * step.astype(np.float64), atol=1.1 / 127)


def test_an_encoding_that_is_not_committed_changes_nothing_that_is_owed() -> None:
    layout = lay_out([TensorSpec("w", [BLOCK], "F32", "param")])
    (chunk,) = layout.chunks
    generator = np.random.default_rng(0)
    moves = generator.standard_normal((3, BLOCK)).astype(np.float32)
    payloads = []
    for tries in (1, 3):
        feedback, out = Feedback(layout), np.empty(encoded_bytes("int8", BLOCK), np.uint8)
        for move in moves:
            for attempt in range(tries):
                feedback.encode("int8", chunk, move * (tries - attempt), out)
            feedback.commit()
        payloads.append(out.tobytes())
    assert payloads[0] == payloads[1]


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_the_consensus_of_a_round_that_came_to_nothing_is_put_back(dtype: str) -> None:
    layout = lay_out([TensorSpec("w", [700_000], dtype, "param")])
    current = np.random.default_rng(1).integers(0, 120, layout.total_bytes).astype(np.uint8)
    before = current.copy()
    consensus, applier = Consensus(layout, current), Applier()
    consensus.begin(3)
    chunk = layout.chunks[0]
    part = current[: chunk.live_bytes]
    kept = consensus.before(0)
    with np.errstate(all="ignore"):
        applier.add(chunk, kept, np.ones(chunk.elements, np.float32), part)
    assert (part != before[: chunk.live_bytes]).any()
    np.testing.assert_array_equal(consensus.before(0), before[: chunk.live_bytes])
    consensus.begin(3)  # another attempt
    np.testing.assert_array_equal(consensus.before(0), before[: chunk.live_bytes])
    consensus.begin(4)
    np.testing.assert_array_equal(current, before)
    current[:10] = 1
    consensus.commit()
    consensus.begin(5)
    assert (consensus.before(0)[:10] == 1).all()

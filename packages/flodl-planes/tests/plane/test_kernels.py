"""The arithmetic of a chunk, against float64 and against the rules of rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_planes.plane.kernels import Adder, exact_weights, narrow

COUNT = 1000


def to_bf16(values: Any) -> Any:
    """Round to nearest, ties to even, in integer arithmetic of Python: slow, and written differently from ours."""
    out = []
    for bits in np.asarray(values, np.float32).view(np.uint32).tolist():
        low, high = bits & 0xFFFF, bits >> 16
        if bits & 0x7FFFFFFF > 0x7F800000:
            out.append(0x7FC0)
        else:
            out.append(high + (low > 0x8000 or (low == 0x8000 and high & 1 == 1)))
    return np.array(out, np.uint16)


def of_bf16(bits: Any) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_a_weighted_sum_is_that_of_float64(ranks: int) -> None:
    generator = np.random.default_rng(ranks)
    values = generator.standard_normal((ranks, COUNT)).astype(np.float32)
    shares = generator.random(ranks) + 0.1
    weights = {str(rank): share / shares.sum() for rank, share in enumerate(shares)}
    exact = exact_weights(weights, "F32")
    out = np.empty(4 * COUNT, np.uint8)
    Adder().weighted("F32", [(values[rank].view(np.uint8), exact[rank]) for rank in range(ranks)], out)
    expected = np.average(values.astype(np.float64), axis=0, weights=list(weights.values()))
    np.testing.assert_allclose(out.view(np.float32), expected, atol=ranks * 2e-7)


@pytest.mark.parametrize("ranks", range(1, 65))
def test_equal_weights_sum_to_exactly_one(ranks: int) -> None:
    exact = exact_weights({str(rank): 1 / ranks for rank in range(ranks)}, "F32")
    assert list(exact) == list(range(ranks))
    assert sum(map(float, exact.values())) == 1.0


@pytest.mark.parametrize("ranks", range(1, 9))
def test_a_mask_of_the_lowest_float_or_of_infinities_stays_what_it_is(ranks: int) -> None:
    """Attention masks are buffers and get averaged; a sum before the division would overflow them."""
    lowest = np.finfo(np.float32).min
    mask = np.array([lowest, -np.inf, 0.0, np.inf], np.float32)
    exact = exact_weights({str(rank): 1 / ranks for rank in range(ranks)}, "F32")
    out = np.empty(16, np.uint8)
    with np.errstate(all="ignore"):
        Adder().weighted("F32", [(mask.view(np.uint8), exact[rank]) for rank in range(ranks)], out)
    result = out.view(np.float32)
    np.testing.assert_array_equal(result[1:], mask[1:])
    assert result[0] <= lowest * 0.999999


def test_full_weight_copies_every_bit() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 400, np.uint8)
    out = np.empty(400, np.uint8)
    Adder().weighted("F32", [(noise, exact_weights({"3": 1.0}, "F32")[3])], out)
    np.testing.assert_array_equal(out, noise)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_float32_narrows_to_the_nearest_bf16_ties_to_even(bits: list[int]) -> None:
    values = np.array(bits, np.uint32).view(np.float32)
    expected = to_bf16(values)
    out = np.empty(2 * len(bits), np.uint8)
    narrow("BF16", values.copy().view(np.uint8), out, np.empty(4 * len(bits), np.uint8))
    ours = out.view(np.uint16)
    nan = np.isnan(values)
    assert np.isnan(of_bf16(ours[nan])).all()
    np.testing.assert_array_equal(ours[~nan], expected[~nan])


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F64"])
def test_other_dtypes_are_summed_wide_and_rounded_once(dtype: str) -> None:
    generator = np.random.default_rng(5)
    values = generator.standard_normal((3, COUNT))
    if dtype == "BF16":
        raw = [to_bf16(row.astype(np.float32)) for row in values]
        wide = [of_bf16(bits).astype(np.float64) for bits in raw]
        tolerance = 2.0**-8
    elif dtype == "F16":
        raw = [row.astype(np.float16) for row in values]
        wide = [row.astype(np.float64) for row in raw]
        tolerance = 2.0**-11
    else:
        raw, wide, tolerance = list(values), list(values), 1e-15
    weights = {"0": 0.5, "1": 0.3, "2": 0.2}
    exact = exact_weights(weights, dtype)
    out = np.empty(raw[0].nbytes, np.uint8)
    Adder().weighted_to_live(dtype, [(raw[r].view(np.uint8), exact[r]) for r in range(3)], out)
    result = of_bf16(out.view(np.uint16)) if dtype == "BF16" else out.view(raw[0].dtype)
    expected = 0.5 * wide[0] + 0.3 * wide[1] + 0.2 * wide[2]
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=1e-7 if dtype != "F64" else 1e-15)


@pytest.mark.parametrize("hosts", [1, 2, 3, 5])
def test_hosts_sums_are_added_in_their_order(hosts: int) -> None:
    generator = np.random.default_rng(hosts)
    sums = [generator.standard_normal(COUNT).astype(np.float32) for _ in range(hosts)]
    out = np.empty(4 * COUNT, np.uint8)
    Adder().plain_to_live("F32", [row.view(np.uint8) for row in sums], out)
    by_hand = sums[0].copy()
    for row in sums[1:]:
        by_hand += row
    np.testing.assert_array_equal(out.view(np.float32), by_hand)
    half = np.empty(2 * COUNT, np.uint8)
    Adder().plain_to_live("BF16", [row.view(np.uint8) for row in sums], half)
    np.testing.assert_array_equal(half.view(np.uint16), to_bf16(by_hand))

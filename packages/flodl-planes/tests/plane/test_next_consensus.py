"""What the hub makes of an average: the outer optimizer's step against a reference in float64, and what it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flodl_planes.hub.next_consensus import NextConsensus
from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.outer import OuterOptimizer, learned, read_outer
from flodl_wire.faults import Refused
from flodl_wire.plane_messages import CHUNK_BYTES, Round, TensorSpec

DILOCO = OuterOptimizer("nesterov", 0.7, 0.9)
SLOW = OuterOptimizer("slow_momentum", 1.0, 0.7)
PARAMETERS, STATISTICS = CHUNK_BYTES // 4 + 100, 60
MODEL = [TensorSpec("w", [PARAMETERS], "F32", "param"), TensorSpec("running_var", [STATISTICS], "F32", "buffer")]


class World:
    """One that averages `averages` by itself: what the hub is told, without anybody who tells it."""

    def __init__(self, tensors: list[TensorSpec], wire: str, outer: OuterOptimizer | None) -> None:
        self.layout = lay_out(tensors)
        self.buffer = np.zeros(self.layout.total_bytes, np.uint8)
        self.next = NextConsensus(self.layout, tensors, wire, outer, self.buffer)
        self.number, self.wire, self.outer = 0, wire, outer

    def round(self, average: np.ndarray, *, attempts: int = 1, steps: bool = True) -> np.ndarray:
        """The consensus after a round in which the ranks average to `average` (float32, of the sum layout)."""
        self.number += 1
        for attempt in range(attempts):
            outer = bool(self.outer) and steps
            said = Round(self.number, {"0": 1.0}, 0, False, attempt=attempt, wire=self.wire, outer=outer)
            self.next.begin(said, self.buffer)
            for number, chunk in enumerate(self.layout.chunks):
                first = chunk.sum_offset // 4
                total = average[first : first + chunk.elements] * np.float32(attempts - attempt)
                before = self.next.before(said, number)
                if before is not None:
                    total = total - self.values(before, chunk.dtype)
                out = self.buffer[chunk.live_offset : chunk.live_offset + chunk.live_bytes]
                assert self.next.handles(said, chunk)
                self.next.make(said, number, [total.astype(np.float32).view(np.uint8)], out)
        self.next.commit(said)
        return self.values(self.buffer, self.layout.chunks[0].dtype)

    def values(self, raw: np.ndarray, dtype: str) -> np.ndarray:
        if dtype == "F32":
            return raw.view(np.float32).copy()
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def by_torchs_rule(outer: OuterOptimizer, averages: list[np.ndarray]) -> list[np.ndarray]:
    """torch.optim.SGD on the outer gradient, in float64; buffers averaged plainly."""
    consensus = np.zeros(averages[0].size)
    momentum = np.zeros(averages[0].size)
    steps = []
    for average in averages:
        gradient = consensus - average
        momentum = outer.momentum * momentum + gradient
        step = gradient + outer.momentum * momentum if outer.kind == "nesterov" else momentum
        after = consensus - outer.lr * step
        after[PARAMETERS:] = average[PARAMETERS:]
        consensus = after
        steps.append(consensus)
    return steps


@pytest.mark.parametrize("outer", [DILOCO, SLOW], ids=lambda outer: outer.kind)
def test_five_rounds_follow_torchs_sgd_and_buffers_the_average(outer: OuterOptimizer) -> None:
    generator = np.random.default_rng(0)
    averages = [generator.standard_normal(PARAMETERS + STATISTICS).astype(np.float32) for _ in range(5)]
    world = World(MODEL, "float32", outer)
    ours = [world.round(average) for average in averages]
    for mine, theirs in zip(ours, by_torchs_rule(outer, [a.astype(np.float64) for a in averages]), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-6)
    np.testing.assert_array_equal(ours[-1][PARAMETERS:], averages[-1][PARAMETERS:])


@pytest.mark.parametrize("wire", ["float32", "bf16", "int8"])
def test_an_attempt_that_came_to_nothing_leaves_no_trace(wire: str) -> None:
    generator = np.random.default_rng(1)
    averages = [generator.standard_normal(PARAMETERS + STATISTICS).astype(np.float32) for _ in range(3)]
    once, thrice = World(MODEL, wire, DILOCO), World(MODEL, wire, DILOCO)
    for average in averages:
        np.testing.assert_array_equal(once.round(average), thrice.round(average, attempts=3))
    assert once.next.memory and thrice.next.memory
    np.testing.assert_array_equal(once.next.memory.kept, thrice.next.memory.kept)


def test_a_broadcast_is_no_step_and_leaves_the_memory_alone() -> None:
    world = World(MODEL, "int8", DILOCO)
    average = np.ones(PARAMETERS + STATISTICS, np.float32)
    world.round(average)
    assert world.next.memory
    before = world.next.memory.kept.copy()
    np.testing.assert_allclose(world.round(2 * average, steps=False), 2.0, rtol=1e-2)
    np.testing.assert_array_equal(world.next.memory.kept, before)


def test_the_memory_goes_by_parameter_and_comes_back() -> None:
    tensors = [TensorSpec("w", [3, 5], "F32", "param"), TensorSpec("h", [4], "BF16", "param"), *MODEL[1:]]
    world = World([TensorSpec("v", [7], "F32", "param"), *tensors], "float32", SLOW)
    assert world.next.memory
    world.next.memory.kept.view(np.float32)[:] = np.arange(world.next.memory.kept.size // 4)
    state = world.next.outer_state()
    assert {name: memory.shape for name, memory in state.items()} == {"v": (7,), "w": (3, 5), "h": (4,)}
    assert state["w"].ravel()[0] == 7
    assert state["h"][0] == CHUNK_BYTES // 4  # its section begins with a chunk of its own
    state["h"][:] = 0
    assert world.next.memory.kept.view(np.float32)[CHUNK_BYTES // 4] == 0, "a view: restoring is writing"


def test_half_precision_weights_keep_moving_by_less_than_their_own_step() -> None:
    """0.001 a round on weights of 1 in bf16, whose step there is 0.0078: what rounding swallows is owed."""
    world = World([TensorSpec("w", [700], "BF16", "param")], "int8", None)
    where = world.round(np.ones(700, np.float32))
    for _ in range(100):
        where = world.round(where + np.float32(1e-3))
    np.testing.assert_allclose(where, 1.1, atol=0.01)


def test_parameters_are_told_from_buffers_chunk_by_chunk() -> None:
    tensors = [*MODEL, TensorSpec("h", [3], "BF16", "buffer"), TensorSpec("n", [2], "I64", "buffer")]
    assert learned(tensors, lay_out(tensors)) == [CHUNK_BYTES // 4, 100, 0, 0]


@pytest.mark.parametrize(
    "terms",
    [
        {"kind": "adam", "lr": 1.0, "momentum": 0.0},
        {"kind": "nesterov"},
        {"kind": "nesterov", "lr": 0.0, "momentum": 0.9},
        {"kind": "nesterov", "lr": np.inf, "momentum": 0.9},
        {"kind": "nesterov", "lr": np.nan, "momentum": 0.9},
        {"kind": "nesterov", "lr": 0.7, "momentum": 1.0},
        {"kind": "nesterov", "lr": 0.7, "momentum": -0.1},
        {"kind": "nesterov", "lr": 0.7, "momentum": 0.9, "warmup": 3},
    ],
)
def test_an_outer_optimizer_that_cannot_be_meant_is_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="outer optimizer"):
        read_outer(terms)
    assert read_outer({}) is None


@pytest.mark.parametrize(("lr", "momentum"), [(1e-3, 0.0), (0.7, 0.9), (2.0, 0.999)])
def test_an_outer_optimizer_within_bounds_is_taken_as_it_is(lr: float, momentum: float) -> None:
    outer = read_outer({"kind": "slow_momentum", "lr": lr, "momentum": momentum})
    assert outer == OuterOptimizer("slow_momentum", lr, momentum)

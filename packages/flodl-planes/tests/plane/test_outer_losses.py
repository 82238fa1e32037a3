"""An outer optimizer while the world shrinks: hosts die in the middle of rounds, and consensus and momentum follow
plain float64 all the same, with whoever is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flodl_planes.coordinator.transport_events import RelayLost

WAIT = 30.0
ELEMENTS = 300_001  # more than one chunk
CLOSE = 4e-6  # models around 1 in float32, whose roundings a momentum of 0.9 carries on for ten rounds
RANKS = {"a": [0, 1], "b": [2], "c": [3]}


class Reference:
    """The outer step in float64."""

    def __init__(self, kind: str, lr: float, momentum: float) -> None:
        self.kind, self.lr, self.momentum = kind, lr, momentum
        self.consensus = np.ones(ELEMENTS)  # round 0 hands out rank 0's model
        self.memory = np.zeros(ELEMENTS)

    def step(self, models: list[Any], weights: list[float]) -> None:
        difference = np.average(np.array(models, np.float64), axis=0, weights=weights) - self.consensus
        self.memory = self.momentum * self.memory + difference
        nesterov = difference + self.momentum * self.memory
        self.consensus = self.consensus + self.lr * (nesterov if self.kind == "nesterov" else self.memory)


@pytest.mark.parametrize("outer", [("nesterov", 0.7, 0.9), ("slow_momentum", 1.0, 0.7)], ids=lambda outer: outer[0])
@pytest.mark.parametrize("beside", [{"a"}, {"b"}, set()], ids=["first-dies-beside-the-hub", "last-stays", "all-apart"])
def test_hosts_that_die_in_the_middle_of_rounds_leave_the_step_of_the_others(
    make_world: Any, outer: tuple[str, float, float], beside: set[str]
) -> None:
    kind, lr, momentum = outer
    terms = {"kind": kind, "lr": lr, "momentum": momentum}
    world = make_world(RANKS, beside, elements=ELEMENTS, outer=terms).start()
    reference = Reference(*outer)
    generator = np.random.default_rng(8)
    hosts = list(RANKS)
    world.round(0, {"0": 1.0}, alone=False)
    dies = {2: "c", 4: "a"}  # in that round
    for number in range(1, 7):
        moves = generator.standard_normal((4, ELEMENTS)).astype(np.float32) * np.float32(0.01)
        there = [rank for host in hosts for rank in RANKS[host]]
        for rank in there:
            world.ranks[rank].floats[:] += moves[rank]
        lost = dies.get(number)
        staying = [host for host in hosts if host != lost]
        working = {rank: world.ranks[rank].take_part() for host in staying for rank in RANKS[host]}
        if lost:  # its relay would do in time what its ranks leave undone: let the hub wait for it
            world.transport._relays[lost].has = lambda round: False
        assert world.order(number, _shares(there), hosts=hosts, alone=False, outer=True)
        if lost:
            world.transport.drop_host(lost, "it fell silent")
            assert world.next(RelayLost).interrupted == number
            hosts = staying
            assert world.order(number, _shares(list(working)), hosts=hosts, alone=False, outer=True, attempt=1)
        expected = [reference.consensus + moves[rank] for rank in working]
        reference.step(expected, [rank + 1 for rank in working])
        for done in working.values():
            assert done.result(WAIT).attempt == (1 if lost else 0)
        for rank in working:
            np.testing.assert_allclose(world.ranks[rank].floats, reference.consensus, rtol=0, atol=CLOSE)
        np.testing.assert_allclose(world.transport.outer_state()["w"], reference.memory, rtol=0, atol=CLOSE)
        np.testing.assert_allclose(
            world.transport.rescued(number).view(np.float32)[:ELEMENTS], reference.consensus, rtol=0, atol=CLOSE
        )
    assert hosts == ["b"]


def _shares(ranks: list[int]) -> dict[str, float]:
    """Rank r has done r + 1 steps."""
    whole = sum(rank + 1 for rank in ranks)
    return {str(rank): (rank + 1) / whole for rank in ranks}

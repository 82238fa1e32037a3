"""Rounds whose data the ranks move themselves (nccl_*): the hub carries words, and takes what is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flodl_planes.coordinator.transport_events import RankLost, RelayLost, RoundDone
from flodl_wire.plane_messages import Commit, Round

HALVES = {"0": 0.5, "1": 0.5}
WORLDS = [
    pytest.param({"a": [0, 1]}, {"a"}, id="one host"),
    pytest.param({"a": [0], "b": [1]}, {"a"}, id="hub beside a"),
    pytest.param({"a": [0], "b": [1]}, set(), id="both remote"),
]


def begin(world: Any, number: int, **more: Any) -> Round:
    """The round as the ranks see it."""
    assert world.order(number, HALVES, direct=True, hands=[0, 1], **more)
    seen = [rank.plane.receive() for rank in world.ranks.values()]
    assert all(message == seen[0] for message in seen)
    return seen[0]


def await_commit(world: Any, number: int, attempt: int = 0) -> None:
    for rank in world.ranks.values():
        message = None
        while message is None:
            message = rank.plane.pick(lambda message: isinstance(message, Commit))
            if message is None:
                rank.plane.wait(None)
        assert message == Commit(number, attempt)


@pytest.mark.parametrize(("hosts", "beside"), WORLDS)
def test_nothing_is_touched_until_the_commit_which_reaches_every_rank(
    make_world: Any, hosts: dict[str, list[int]], beside: set[str]
) -> None:
    world = make_world(hosts, beside).start()
    for number in (1, 2):
        begin(world, number)
        world.transport.commit(number, 0)
        await_commit(world, number)
        assert world.next(RoundDone).round == number
    assert [rank.floats[0] for rank in world.ranks.values()] == [1.0, 2.0]


@pytest.mark.parametrize(("hosts", "beside"), WORLDS)
@pytest.mark.parametrize("leader", [0, 1])
def test_what_the_leader_lays_down_is_the_hubs_average_before_anything_is_committed(
    make_world: Any, hosts: dict[str, list[int]], beside: set[str], leader: int
) -> None:
    world = make_world(hosts, beside, elements=600_000).start()
    round = begin(world, 1, keep=True, leader=leader)
    world.transport.commit(1, 0)
    assert world.transport.average() is None
    average = np.full(600_000, 1.5, np.float32).view(np.uint8)
    world.ranks[leader].plane.keep(round, average)
    assert world.next(RoundDone).round == 1
    assert (world.transport.average().view(np.float32) == 1.5).all()
    await_commit(world, 1)


def test_a_rank_that_dies_takes_the_round_with_it(make_world: Any) -> None:
    world = make_world({"a": [0, 1, 2]}).start()
    assert world.order(1, HALVES, direct=True, hands=[0, 1, 2])
    world.ranks[2].plane.close()
    lost = world.next(RankLost)
    assert (lost.rank, lost.interrupted) == (2, 1)
    world.transport.commit(1, 0)  # too late
    assert not world.order(1, HALVES, direct=True, hands=[0, 1, 2], attempt=1)  # not with the dead one
    assert world.order(1, HALVES, direct=True, hands=[0, 1], attempt=1)
    world.transport.commit(1, 1)
    done = world.next(RoundDone)
    assert (done.round, done.attempt) == (1, 1)


def test_a_death_behind_the_commit_interrupts_nothing(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}).start()
    begin(world, 1)
    world.transport.commit(1, 0)
    world.ranks[1].plane.close()
    assert world.next(RankLost).interrupted is None


def test_a_lost_host_takes_the_round_with_it(make_world: Any) -> None:
    world = make_world({"a": [0], "b": [1]}, {"a"}).start()
    begin(world, 1)
    world.transport.drop_host("b", "cut")
    lost = world.next(RelayLost)
    assert (lost.host, lost.interrupted) == ("b", 1)

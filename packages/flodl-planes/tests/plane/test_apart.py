"""Rounds that the ranks do not stop for (cpu_async): the relay does every share, the average comes by itself."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_planes.coordinator.transport_events import RankLost, RoundDone
from flodl_planes.plane.rank_plane import RankPlane
from flodl_wire.plane_messages import Commit, Deposit, Round

BIG = 1_000_000  # floats: four chunks


def hand_in(world: Any, number: int) -> None:
    for rank in world.ranks.values():
        rank.plane.send(Deposit(number, 1, 1))
    world.await_deposits(len(world.ranks))


def await_average(plane: RankPlane) -> Any:
    """What a rank does between two batches, until the average is there."""
    opened, committed = None, False
    while True:
        message = plane.look()
        if isinstance(message, Round):
            opened = message
        elif isinstance(message, Commit):
            committed = True
        elif opened is not None and (committed or plane.stands(opened)):
            return plane.average(opened)
        else:
            plane.wait(opened)


def test_on_one_host_the_relay_averages_the_snapshots(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}, elements=BIG).start()
    for number in (1, 2):
        hand_in(world, number)
        assert world.order(number, {"0": 0.25, "1": 0.75}, apart=True)
        for rank in world.ranks.values():
            average = await_average(rank.plane)
            expected = 0.25 * 1 + 0.75 * 2
            assert average is rank.live.array and (rank.floats == expected).all()
            rank.floats[:] = rank.number + 1


@pytest.mark.parametrize("beside", [{"a"}, set()], ids=["hub beside a", "both remote"])
def test_of_several_hosts_the_average_stands_in_result_and_the_snapshot_stays(
    make_world: Any, beside: set[str]
) -> None:
    world = make_world({"a": [0, 1], "b": [2]}, beside, elements=BIG).start()
    hand_in(world, 1)
    assert world.order(1, {"0": 0.5, "2": 0.5}, apart=True)
    for rank in world.ranks.values():
        average = await_average(rank.plane)
        assert (average.view("float32") == 2.0).all()
        assert (rank.floats == rank.number + 1).all()


def test_nobody_had_weight_and_nothing_moves(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}).start()
    hand_in(world, 1)
    assert world.order(1, {}, leader=0, apart=True)
    assert [await_average(rank.plane) for rank in world.ranks.values()] == [None, None]


def test_a_rank_that_dies_behind_its_deposit_still_counts(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}, elements=BIG).start()
    hand_in(world, 1)
    world.ranks[1].plane.close()
    assert world.next(RankLost).rank == 1
    assert world.order(1, {"0": 0.5, "1": 0.5}, apart=True)
    assert world.next(RoundDone).round == 1
    assert await_average(world.ranks[0].plane) is not None
    assert (world.ranks[0].floats == 1.5).all()

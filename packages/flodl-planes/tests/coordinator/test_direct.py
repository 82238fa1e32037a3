"""nccl_*: the ranks move the tensors themselves, the hub decides when what they have counts."""

from typing import Any

import pytest

from flodl_planes.coordinator.hub_events import CommitRound, Expel, RoundNotBegun
from flodl_planes.coordinator.transport_events import FromRank, RankLost, RelayJoined
from flodl_wire.hub_messages import Finished, HubFailed, TrainingBegan
from flodl_wire.plane_messages import Moved


def world_of(paper: Any, hosts: dict[str, list[int]], mode: str = "nccl_cadence", **changed: Any) -> Any:
    return paper(hosts, mode=mode, **changed)


def committed(orders: list[Any]) -> list[tuple[int, int]]:
    return [(order.round, order.attempt) for order in orders if isinstance(order, CommitRound)]


@pytest.mark.parametrize("mode", ["nccl_sync", "nccl_cadence"])
def test_a_run_ends_with_every_sample_merged(paper: Any, mode: str) -> None:
    world = world_of(paper, {"a": [0, 1], "b": [2]}, mode).load().finish()
    assert all(round.direct and not round.apart for round in world.rounds)
    assert sorted(world.merged[0]) == list(range(100))
    assert (world.rounds[-1].keep, world.rounds[-1].confirm) == (True, True)


def test_a_round_is_committed_with_the_last_ranks_word(paper: Any) -> None:
    world = world_of(paper, {"a": [0], "b": [1]}).load()
    world.deposit(0)
    world.deposit(1)
    assert world.open.hands == [0, 1]
    assert committed(world.tell(FromRank(1, Moved(1, 0)))) == []
    assert committed(world.tell(FromRank(1, Moved(1, 0)))) == []  # said twice is said once
    assert committed(world.tell(FromRank(0, Moved(1, 0)))) == [(1, 0)]


@pytest.mark.parametrize("launcher_first", [False, True])
def test_a_death_before_that_voids_the_round_and_the_dead_ranks_work(paper: Any, launcher_first: bool) -> None:
    world = world_of(paper, {"here": [0, 1, 2]}).load()
    for rank in (0, 1, 2):
        world.deposit(rank)
    world.tell(FromRank(0, Moved(1, 0)))
    world.kill(1, launcher_first=launcher_first)
    again = world.rounds[-1]
    assert (again.round, again.attempt, again.hands, again.weights) == (1, 1, [0, 2], {"0": 0.5, "2": 0.5})
    assert committed(world.tell(FromRank(2, Moved(1, 0)))) == []  # of the attempt that is off
    world.finish()
    assert sorted(world.merged[0]) == list(range(100))


@pytest.mark.parametrize("launcher_first", [False, True])
def test_a_deposit_whose_rank_dies_before_the_round_is_dealt_again(paper: Any, launcher_first: bool) -> None:
    world = world_of(paper, {"here": [0, 1, 2]}).load()
    world.deposit(1)
    world.kill(1, launcher_first=launcher_first)
    world.finish()
    assert sorted(world.merged[0]) == list(range(100))
    assert all("1" not in round.weights for round in world.rounds[1:])


def test_a_round_that_finds_a_rank_gone_waits_for_the_word_on_it(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1, 2]}).load()
    for rank in (0, 1, 2):
        world.deposit(rank)
    world.open = None
    world.tell(RoundNotBegun(1))
    world.kill(2)
    assert (world.rounds[-1].attempt, world.rounds[-1].hands) == (1, [0, 1])


def test_who_stands_still_in_a_round_is_ended_and_the_others_average_without_it(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1, 2]}, changes={"stall_timeout": 20.0}).load()
    for rank in (0, 1, 2):
        world.deposit(rank)
    world.tell(FromRank(0, Moved(1, 0)))
    assert not [order for order in world.tick(15) if isinstance(order, Expel)]
    expelled = [order for order in world.tick(6) if isinstance(order, Expel)]
    assert expelled == [Expel(1), Expel(2)], "their relay knows which of them only waits for the other"
    world.kill(2)
    assert (world.rounds[-1].attempt, world.rounds[-1].hands) == (1, [0, 1])
    assert world.finish().told(Finished)[0].result.degraded


def test_a_single_survivor_ends_the_run(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}).load()
    world.kill(1)
    assert world.failure().code == "single-survivor"


def test_a_world_of_one_trains(paper: Any) -> None:
    assert world_of(paper, {"here": [0]}).load().finish().told(Finished)


def test_ranks_that_cannot_reach_one_another_end_the_run_early_with_the_way_out(paper: Any) -> None:
    world = world_of(paper, {"a": [0], "b": [1]})
    world.form()
    for host, ranks in world.hosts.items():
        world.tell(RelayJoined(host, ranks))
    for rank in (0, 1):
        world.tell(FromRank(rank, world.hello(rank)))
    world.tell(FromRank(1, Moved(0, 0, "b cannot connect to a at 10.0.0.1: timed out", forming=True)))
    assert not world.told(HubFailed)  # a death would be told of within moments
    world.tick(2.1)
    failed = world.failure()
    assert failed.code == "needs-direct-reach" and "direct reach" in failed.what
    assert "b cannot connect to a at 10.0.0.1" in failed.why and "cpu_cadence" in failed.fix


def test_a_broken_collective_waits_for_the_death_behind_it(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1, 2]}).load()
    for rank in (0, 1, 2):
        world.deposit(rank)
    world.tell(FromRank(0, Moved(1, 0, "connection closed by peer")))
    world.tick(5.0)
    world.kill(1)
    world.finish()
    assert world.told(Finished)[0].result.degraded


def test_a_broken_collective_that_nothing_explains_ends_the_run(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}).load()
    world.deposit(0)
    world.deposit(1)
    world.tell(FromRank(0, Moved(1, 0, "unhandled system error")))
    world.tick(17.5)
    assert world.failure().code == "collective-failed" and "unhandled system error" in world.failure().why


def test_what_moves_the_tensors_is_said(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]})
    world.form()
    for rank in (0, 1):
        world.tell(FromRank(rank, world.hello(rank, collective="gloo")))
    assert "nccl_cadence over gloo (the ranks run on the processor) on 2 ranks" in world.told(TrainingBegan)[0].text
    world.decide()
    assert world.finish().told(Finished)[0].result.collective == "gloo"


def test_ranks_on_gpus_and_on_processors_are_refused_together(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1, 2]})
    world.form()
    for rank in (0, 1, 2):
        world.tell(FromRank(rank, world.hello(rank, collective="gloo" if rank else "nccl")))
    assert world.failure().why == "ranks 1, 2 talk gloo; rank 0 talks nccl"


def test_a_lost_rank_that_said_goodbye_interrupts_nothing(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}).load()
    assert world.tell(RankLost(1, True)) == []

"""cpu_async: windows are dealt ahead, rounds take place behind the ranks' backs, and an epoch ends on an average."""

from typing import Any

from flodl_planes.coordinator.hub_events import SendRank
from flodl_wire.hub_messages import Finished
from flodl_wire.plane_messages import Plan


def ahead(world: Any) -> list[tuple[int, int, int | None]]:
    """(rank, window, overshoot) of every plan that was sent outside a round."""
    sent = [(order.rank, order.message) for order in world.said if isinstance(order, SendRank)]
    return [(rank, plan.window, plan.overshoot) for rank, plan in sent if isinstance(plan, Plan)]


def world_of(paper: Any, hosts: dict[str, list[int]], **changed: Any) -> Any:
    return paper(hosts, **{"samples": 400, "mode": "cpu_async", **changed})


def test_the_next_window_lies_ready_as_soon_as_a_round_is_decided(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}).load()
    assert [plan.window for plan in world.rounds[0].plans.values()] == [0, 0]
    assert ahead(world) == [(0, 1, 3), (1, 1, 3)]
    world.deposit(0)
    assert world.open is None  # the average waits for rank 1, and rank 0 is at window 1 already
    world.deposit(1)
    assert (world.open.apart, world.open.plans, world.open.weights) == (True, {}, {"0": 0.5, "1": 0.5})
    world.decide()
    assert ahead(world)[2:] == [(0, 2, 3), (1, 2, 3)]


def test_an_epochs_last_round_is_one_that_everybody_waits_for(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}, epochs=2, evaluates=True).load().finish()
    barriers = [round for round in world.rounds if not round.apart]
    assert len(barriers) == 3 and len(world.rounds) > 5  # the beginning, and an end of each epoch
    assert [plan.epoch for plan in barriers[1].plans.values()] == [1, 1]
    assert [plan.evaluate for plan in barriers[1].plans.values()].count(0) == 1
    assert (barriers[2].keep, barriers[2].confirm) == (True, True)
    assert [epoch.eval for epoch in world.told(Finished)[0].result.epochs] == [{"accuracy": 0.5}] * 2


def test_an_allowance_follows_how_late_averages_come_up_to_15(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}, samples=4000, late=lambda rank: 55.0 if rank else 1000.0).load()
    for _ in range(3):
        world.deposit(0)
        world.deposit(1)
        world.decide()
    last = {rank: overshoot for rank, _, overshoot in ahead(world)}
    assert last == {0: 15, 1: 7}  # 55 ms are five and a half batches, and one for the step it is taken in at


def test_max_overshoot_pins_the_allowance(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}, elche={"max_overshoot": 40}).load()
    assert ahead(world) == [(0, 1, 40), (1, 1, 40)]


def test_a_dead_ranks_two_windows_are_dealt_again(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1, 2]}).load()
    held = [*world.plans[1].spans, *world.later[1][0].spans]
    world.kill(1)
    (row,) = world.rows("lost")
    assert row["returned"] == sum(count for _, count in held) == 60
    world.finish()
    assert sorted(world.merged[0]) == list(range(400))


def test_a_host_lost_in_a_free_round_takes_nobodys_work_away(paper: Any) -> None:
    world = world_of(paper, {"a": [0], "b": [1], "c": [2]}).load()
    before = {rank: plans[0] for rank, plans in world.later.items()}
    for rank in (0, 1, 2):
        world.deposit(rank)
    world.cut("b")
    again = world.rounds[-1]
    assert (again.round, again.attempt, again.apart, again.plans) == (1, 1, True, {})
    assert again.weights == {"0": 0.5, "2": 0.5}
    assert {rank: world.plans[rank] for rank in (0, 2)} == {rank: before[rank] for rank in (0, 2)}
    world.finish()
    assert sorted(world.merged[0]) == list(range(400))


def test_an_evaluation_whose_rank_died_gets_a_round_that_everybody_waits_for(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}, samples=600, epochs=2, evaluates=True).load()
    while not (world.undone and any(plan.evaluate is not None for plan in world.plans.values())):
        world.step()
    (evaluator,) = [rank for rank, plan in world.plans.items() if plan.evaluate is not None]
    world.kill(evaluator)
    world.finish()
    assert [epoch.eval for epoch in world.told(Finished)[0].result.epochs] == [{"accuracy": 0.5}] * 2


def test_who_fell_behind_gets_less_and_is_back_in_step(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}, samples=10_000).load()
    for _ in range(4):
        for rank in (0, 1):
            world.deposit(rank)
        world.decide()
    even = {rank: sum(count for _, count in world.later[rank][0].spans) for rank in (0, 1)}
    world.deposit(0)
    world.now += 0.050  # rank 1 was held up by five batches' time
    world.deposit(1)
    world.decide()
    eased = {rank: sum(count for _, count in world.later[rank][0].spans) for rank in (0, 1)}
    assert even == {0: 100, 1: 100} and eased == {0: 100, 1: 50}


def test_who_is_done_with_the_next_window_too_is_not_taken_for_late(paper: Any) -> None:
    world = world_of(paper, {"here": [0, 1]}, samples=10_000).load()
    for _ in range(4):
        for rank in (0, 1):
            world.deposit(rank)
        world.decide()
    for rank in (0, 1):
        world.deposit(rank)
    world.now += 0.1  # ten batches' time: the average is late
    world.deposit(0)
    world.decide()
    assert {rank: sum(count for _, count in world.later[rank][0].spans) for rank in (0, 1)} == {0: 100, 1: 100}

"""A window in pieces: who is done early is dealt more of it, and deposits again."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_planes.coordinator.hub_events import SendRank
from flodl_planes.coordinator.pieces import Pieces, joined
from flodl_planes.coordinator.transport_events import FromRank
from flodl_wire.hub_messages import Finished, HubFailed
from flodl_wire.plane_messages import Deposit, Plan


def pieces(orders: list[Any]) -> list[tuple[int, Plan]]:
    plans = [(order.rank, order.message) for order in orders if isinstance(order, SendRank)]
    return [(rank, plan) for rank, plan in plans if isinstance(plan, Plan) and plan.further]


def world_of(paper: Any, **changes: Any) -> Any:
    """Rank 1 takes four times as long; the probe is behind them."""
    plain: dict[str, Any] = {"samples": 900, "ms": {0: 10.0, 1: 40.0, 2: 40.0}.__getitem__, "elche": {}}
    world = paper({"here": [0, 1]}, **{**plain, **changes}).load()
    while world.coordinator.training.decided_round < 1:
        world.step()
    return world


def test_a_rank_that_is_done_first_goes_on_with_the_same_window_and_the_round_waits_for_it(paper: Any) -> None:
    world = world_of(paper)
    window, before = world.plans[0].window, world.plans[0]
    ((rank, piece),) = pieces(world.deposit(0))
    assert (rank, piece.window) == (0, window) and piece.spans and piece.step > before.step
    world.deposit(1)
    assert world.open is None, "rank 0 is under way again"
    while world.open is None:
        world.deposit(min(world.undone))
    done = sum(count for _, count in before.spans) + sum(count for _, count in piece.spans)
    assert sum(count for _, count in world.done[0].spans) >= done > sum(count for _, count in before.spans)
    assert len(world.finish().told(Finished)) == 1


def test_the_weight_of_a_rank_counts_all_its_pieces(paper: Any) -> None:
    world = world_of(paper)
    while world.open is None:
        world.deposit(min(world.undone))
    batches = {rank: sum(-(-count // 10) for _, count in plan.spans) for rank, plan in world.done.items()}
    whole = sum(batches.values())
    assert world.open.weights == {str(rank): pytest.approx(count / whole) for rank, count in batches.items()}


def test_who_dies_over_a_further_piece_forfeits_the_whole_window(paper: Any) -> None:
    world = world_of(paper)
    world.deposit(0)
    held = [span for plan in (world.done[0], world.plans[0]) for span in plan.spans]
    world.kill(0)
    (row,) = world.rows("lost")
    assert row["returned"] == sum(count for _, count in held)
    world.finish()
    assert sorted(world.merged[0]) == list(range(900))


def test_a_piece_that_comes_back_with_other_samples_is_refused(paper: Any) -> None:
    world = world_of(paper)
    world.deposit(0)
    window = world.plans[0].window
    world.tell(FromRank(0, Deposit(window, 1, 1)))
    (failed,) = world.told(HubFailed)
    assert (failed.code, failed.what) == ("samples-differ", "cannot count rank 0's work")


def test_a_rank_whose_model_is_not_finite_gets_no_more_of_the_window(paper: Any) -> None:
    world = world_of(paper, changes={"nan": "skip"})
    plan = world.plans[0]
    samples = sum(count for _, count in plan.spans)
    world.undone.discard(0)
    world.done[0] = plan
    orders = world.tell(FromRank(0, Deposit(plan.window, 3, samples, 30.0, poisoned="weight")))
    assert pieces(orders) == []


def test_a_model_that_stops_being_finite_over_a_further_piece_takes_the_whole_window_with_it(paper: Any) -> None:
    world = world_of(paper, changes={"nan": "skip"})
    world.deposit(0)
    held = [span for plan in (world.done[0], world.plans[0]) for span in plan.spans]
    piece = world.plans[0]
    samples = sum(count for _, count in piece.spans)
    world.undone.discard(0)
    world.tell(FromRank(0, Deposit(piece.window, 3, samples, 30.0, poisoned="weight")))
    (row,) = world.rows("left_out")
    assert row["samples"] == sum(count for _, count in held) > samples


def test_an_average_is_counted_once_however_many_pieces_its_window_has() -> None:
    first, then = Deposit(3, 1, 10, sync_ms=1460.0), Deposit(3, 1, 10, sync_ms=1460.0)
    assert joined(joined(first, then), then).sync_ms == 1460.0


def test_two_deposits_of_one_window_are_one() -> None:
    first = Deposit(3, 2, 20, 10.0, 1.0, 5.0, 7.0, 0.5, 4.0, 20, divergence=0.1, late_ms=2.0, lr=0.2)
    then = Deposit(3, 1, 10, 5.0, 0.5, 5.5, 1.0, 0.0, 1.0, 10, not_finite=True, divergence=0.3, lr=0.1, poisoned="w")
    assert joined(first, then) == Deposit(
        3, 3, 30, 15.0, 1.5, 10.5, 8.0, 0.5, 5.0, 30, True, divergence=0.1, late_ms=2.0, lr=0.1, poisoned="w"
    )


def test_when_a_rank_should_be_done_is_known_from_the_average_or_piece_before() -> None:
    kept = Pieces()
    kept.expect({0: 12.0, 1: 10.0})
    assert kept.remaining([0, 1, 2], 10.5) == {0: 1500.0, 1: 0.0}, "rank 1 is overdue, of rank 2 nothing is known"
    kept.handed(0, Deposit(3, 1, 10), 11.0, 250.0)
    assert kept.remaining([0], 11.125) == {0: 125.0}
    kept.new_window()
    assert kept.remaining([0, 1], 12.0) == {}


def test_the_way_of_a_piece_is_the_shortest_of_the_last_five() -> None:
    kept = Pieces()
    assert kept.way(0) == 0.0
    seen = []
    for way in (2.0, 9.0, 8.0, 7.0, 6.0, 5.0):
        kept.handed(0, Deposit(3, 1, 10), 10.0, 40.0)
        kept.deposited(0, Deposit(3, 1, 10, compute_ms=30.0, data_ms=10.0), 10.0 + (40.0 + way) / 1e3)
        seen.append(kept.way(0))
    assert seen == pytest.approx([2.0, 2.0, 2.0, 2.0, 2.0, 5.0])
    kept.handed(0, Deposit(3, 1, 10), 10.0, 40.0)
    kept.deposited(0, Deposit(3, 1, 10, compute_ms=60.0), 10.04)
    assert kept.way(0) == 0.0, "a rank's clock is not ours"
    assert (kept.count, kept.way(1)) == ({0: 7}, 0.0)
    kept.lost(0)
    assert (kept.count, kept.way(0), kept.remaining([0], 10.0)) == ({}, 0.0, {})


def test_a_piece_is_cut_by_what_the_others_have_left(paper: Any) -> None:
    """Rank 1 is known to have most of its window before it; taken for free it would have been left more."""
    world = world_of(paper, samples=9000)
    left, held = world.coordinator.training._pieces.remaining([1], world.now), world.plans[1]
    batches = sum(-(-count // 10) for _, count in held.spans)
    assert left[1] == pytest.approx(40.0 * batches, abs=2.0)


def test_waiting_for_data_is_part_of_what_a_batch_takes(paper: Any) -> None:
    given = []
    for compute, data in ((300.0, 0.0), (100.0, 200.0)):
        world = world_of(paper)
        plan = world.plans[0]
        samples = sum(count for _, count in plan.spans)
        world.undone.discard(0)
        world.done[0] = plan
        orders = world.tell(FromRank(0, Deposit(plan.window, samples // 10, samples, compute, data)))
        given.append([piece.spans for _, piece in pieces(orders)])
    assert given[0] == given[1] != []

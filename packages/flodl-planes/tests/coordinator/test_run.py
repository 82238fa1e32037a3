"""Whole runs, from the first hello to Finished."""

from typing import Any

from flodl_planes.coordinator.hub_events import Exit, SendRank, StartRound, Tick, WriteCheckpoint
from flodl_planes.coordinator.transport_events import FromRank, RelayJoined, RelayLost, RoundDone
from flodl_wire import hub_messages
from flodl_wire.plane_messages import Deposit, Dismiss, EvalDone, Finish, Gpu


def spans(round: Any) -> dict[str, list[list[int]]]:
    return {rank: plan.spans for rank, plan in round.plans.items()}


def test_relays_and_ranks_are_announced_as_they_come(paper: Any) -> None:
    world = paper({"here": [0, 1]})
    world.form()
    world.tell(RelayJoined("here", [0, 1]))
    world.tell(FromRank(1, world.hello(1)))
    assert world.told(hub_messages.RelayIn) == [hub_messages.RelayIn("here")]
    assert world.told(hub_messages.RankIn) == [hub_messages.RankIn(1)]
    assert world.coordinator.phase == "loading"


def test_a_relay_may_be_there_before_the_world_has_formed(paper: Any) -> None:
    world = paper({"here": [0, 1]})
    assert world.tell(RelayJoined("here", [0, 1])) == []
    world.form()
    assert world.told(hub_messages.RelayIn) == [hub_messages.RelayIn("here")]


def test_training_begins_with_rank_0s_model_for_everyone_and_the_first_plans(paper: Any) -> None:
    world = paper({"a": [0, 1], "b": [2]}).load()
    first = world.rounds[0]
    assert (first.round, first.weights, first.leader, first.alone) == (0, {"0": 1.0}, 0, False)
    assert spans(first) == {"0": [[0, 30]], "1": [[30, 30]], "2": [[60, 30]]}
    began = world.told(hub_messages.TrainingBegan)[0].text
    assert began == "cpu_cadence on 3 ranks: 100 samples, 1 epoch of 10 batches, 6 parameters"


def test_the_cards_that_ranks_tell_of_name_the_first_anchor(paper: Any) -> None:
    world = paper({"a": [0, 1], "b": [2]}, samples=10_000, ms={0: 4.0, 1: 4.0, 2: 10.0}.__getitem__)
    world.form()
    for host, ranks in world.hosts.items():
        world.tell(RelayJoined(host, ranks))
    for rank, generation in ((2, 12), (0, 9), (1, 8)):
        world.tell(FromRank(rank, world.hello(rank, gpu=Gpu("cuda", generation, 24))))
    dealer = world.coordinator.training.dealer
    assert dealer.anchor_rank == 1
    while dealer.cadence.phase != "mature" and not world.over:
        world.step()
    assert dealer.anchor_rank == 2, "and afterwards what they do counts"
    assert paper({"a": [0, 1]}).load().coordinator.training.dealer.anchor_rank is None


def test_in_lockstep_each_living_rank_gets_one_batch_in_rank_order(paper: Any) -> None:
    world = paper({"here": [0, 1, 2]}, samples=70, mode="cpu_sync").load().finish()
    assert [spans(round) for round in world.rounds] == [
        {"0": [[0, 10]], "1": [[10, 10]], "2": [[20, 10]]},
        {"0": [[30, 10]], "1": [[40, 10]], "2": [[50, 10]]},
        {"0": [[60, 10]], "1": [], "2": []},
        {"0": []},
    ]
    assert world.rounds[1].weights == {"0": 1 / 3, "1": 1 / 3, "2": 1 / 3}
    assert world.rounds[3].weights == {"0": 1.0}  # an idle rank has no weight, and still receives


def test_weights_follow_the_steps_and_their_exponent(paper: Any) -> None:
    for gamma, expected in ((1.0, (5 / 7, 2 / 7)), (0.0, (0.5, 0.5))):
        world = paper({"here": [0, 1]}, samples=130, gamma=gamma, ms={0: 10.0, 1: 25.0}.__getitem__).load().finish()
        assert spans(world.rounds[1]) == {"0": [[60, 50]], "1": [[110, 20]]}
        assert world.rounds[2].weights == {"0": expected[0], "1": expected[1]}


def test_a_wire_and_an_outer_optimizer_are_for_rounds_in_which_somebody_worked(paper: Any) -> None:
    outer = {"kind": "nesterov", "lr": 0.7, "momentum": 0.9}
    averaging = {"wire": "int8", "outer": outer}
    world = paper({"here": [0, 1]}, samples=80, mode="cpu_sync", averaging=averaging).load().finish()
    assert [round.wire for round in world.rounds] == ["float32"] + ["int8"] * (len(world.rounds) - 1)
    assert [round.outer for round in world.rounds] == [False] + [True] * (len(world.rounds) - 1)
    assert not any(round.alone for round in world.rounds), "the outer optimizer is the hub's"
    began = world.told(hub_messages.TrainingBegan)[0].text
    said = "one box, so nothing is sent as int8: averages are exact; nesterov over the averages (lr 0.7, momentum 0.9)"
    assert began.endswith(f"6 parameters; {said}")
    several = paper({"a": [0], "b": [1]}, mode="cpu_sync", averaging={"wire": "bf16"}).load()
    assert several.told(hub_messages.TrainingBegan)[0].text.endswith("6 parameters; bf16 between boxes")


def test_the_last_round_asks_for_confirmation_and_is_kept(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load().finish()
    *others, last = [(round.confirm, round.keep, round.alone) for round in world.rounds]
    assert set(others) == {(False, False, True)}
    assert last == (True, True, True)


def test_the_checkpoint_is_written_before_anyone_is_let_go(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load().finish()
    order = [type(o) if not isinstance(o, SendRank) else type(o.message) for o in world.said]
    assert order.index(WriteCheckpoint) < order.index(Finish)
    (write,) = [o for o in world.said if isinstance(o, WriteCheckpoint)]
    assert (write.cursor.reason, write.cursor.epoch, write.cursor.merged) == ("finished", 1, [])
    assert [epoch.samples for epoch in write.cursor.history] == [100]
    assert world.said[-1] == Exit(0)


def test_the_clock_of_a_run_starts_with_its_first_batches(paper: Any) -> None:
    world = paper({"here": [0, 1]}, now=1000.0).load()
    began = world.now
    world.finish()
    result = world.told(hub_messages.Finished)[0].result
    assert 0 < result.wall_s <= world.now - began
    assert 0 < result.epochs[0].wall_s <= result.wall_s


def test_epochs_never_share_a_window(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=95, epochs=3).load().finish()
    assert all(len({plan.epoch for plan in round.plans.values()}) <= 1 for round in world.rounds)
    assert world.told(hub_messages.Finished)[0].result.samples == 285


def test_the_fastest_rank_evaluates_each_epoch_on_its_next_plan(paper: Any) -> None:
    speeds = {0: 20.0, 1: 5.0, 2: 10.0}
    world = paper({"here": [0, 1, 2]}, epochs=3, evaluates=True, ms=speeds.__getitem__).load().finish()
    plans = [item for round in world.rounds for item in round.plans.items()]
    assert [(rank, plan.evaluate) for rank, plan in plans if plan.evaluate is not None] == [
        ("1", 0),
        ("1", 1),
        ("1", 2),
    ]
    assert world.rounds[-1].plans["1"].spans == []
    result = world.told(hub_messages.Finished)[0].result
    assert [(epoch.epoch, epoch.eval) for epoch in result.epochs] == [(e, {"accuracy": 0.5}) for e in range(3)]


def test_an_evaluation_that_outruns_the_news_of_its_round_is_not_lost(paper: Any) -> None:
    world = paper({"here": [0]}, samples=10, evaluates=True).load()
    world.deposit(0)
    last = world.open
    world.tell(FromRank(0, EvalDone(0, {"accuracy": 0.9}, 3.0)))
    world.tell(FromRank(0, Deposit(last.plans["0"].window, 0, 0)))
    world.tell(RoundDone(last.round, 0))
    world.applied(0)
    assert world.told(hub_messages.Finished)[0].result.epochs[0].eval == {"accuracy": 0.9}
    assert "accuracy 0.900" in world.told(hub_messages.EpochDone)[0].text


def test_an_epochs_line_says_loss_metrics_rate_balance_and_sync(paper: Any) -> None:
    world = paper({"here": [0, 1]}, evaluates=True).load().finish()
    (done,) = world.told(hub_messages.EpochDone)
    assert done.text.startswith("epoch 1/1  loss 2.000  accuracy 0.500  ")
    assert [word.split()[0] for word in done.text.split("  ")[4:]] == ["balance", "sync"]


def test_an_epochs_line_tells_the_loss_of_the_evaluation_apart(paper: Any) -> None:
    world = paper({"here": [0, 1]}, evaluates=True).load()
    world.metrics = {"loss": 1.0}
    (done,) = world.finish().told(hub_messages.EpochDone)
    assert done.text.startswith("epoch 1/1  loss 2.000  evaluated loss 1.000  ")
    assert world.rows("epoch")[0]["eval"] == {"loss": 1.0}


def test_the_epochs_row_carries_the_proof_of_the_ledger(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=73, epochs=2).load().finish()
    rows = [(row["epoch"], row["samples"], row["merged"]) for row in world.rows("epoch")]
    assert rows == [(0, 73, [[0, 73]]), (1, 73, [[0, 73]])]


def test_progress_is_told_about_twice_a_second(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load()
    world.deposit(0)
    for _ in range(10):
        world.tick(0.25)
    assert len(world.told(hub_messages.Progress)) == 5
    last = world.told(hub_messages.Progress)[-1]
    assert (last.epoch, last.epochs, last.dataset, [rank.rank for rank in last.ranks]) == (0, 1, 100, [0, 1])


def test_a_rank_that_stands_still_is_called_stalled_and_kept(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load()
    world.deposit(0)
    world.tick(11.0)
    progress = world.told(hub_messages.Progress)[-1]
    first = [(rank.rank, rank.stalled, rank.first_batch_s) for rank in progress.ranks]
    assert first == [(0, False, 0.0), (1, False, 11.0)], "nobody knows yet what its first batch should take"
    world.deposit(1)
    world.decide()
    world.deposit(0)
    world.tick(11.0)
    later = [(rank.rank, rank.stalled, rank.first_batch_s) for rank in world.told(hub_messages.Progress)[-1].ranks]
    assert later == [(0, False, 0.0), (1, True, 0.0)]
    world.finish()
    assert not world.told(hub_messages.Finished)[0].result.degraded


def test_nobody_stands_still_while_an_average_travels(paper: Any) -> None:
    world = paper({"a": [0], "b": [1]}, samples=1000).load()
    for _ in range(3):
        world.deposit(0)
        world.deposit(1)
        world.now += 100.0
        world.decide()
        world.tick(1.0)
        ranks = world.told(hub_messages.Progress)[-1].ranks
        assert [(rank.stalled, rank.first_batch_s) for rank in ranks] == [(False, 0.0)] * 2


def test_rounds_are_written_to_the_metrics_once_a_second_at_most(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=3000, epochs=2).load().finish()
    assert len(world.rounds) > 10
    assert len(world.rows("round")) <= 1 + world.now


def test_the_result_adds_up(paper: Any) -> None:
    speeds = {0: 5.0, 1: 10.0, 2: 10.0}
    world = paper({"a": [0, 1], "b": [2]}, samples=200, epochs=2, ms=speeds.__getitem__).load().finish()
    result = world.told(hub_messages.Finished)[0].result
    assert (result.verdict, result.degraded, result.world_size, result.samples) == ("done", False, 3, 400)
    assert sum(rank.samples for rank in result.ranks) == 400
    assert sum(rank.batches for rank in result.ranks) == 40
    assert [rank.samples_per_s for rank in result.ranks] == [2000.0, 1000.0, 1000.0]
    assert abs(result.balance - (400 / result.wall_s) / 4000) < 1e-3
    assert result.rounds == len(world.rounds) - 1


def test_the_last_average_counts_although_no_deposit_tells_of_it(paper: Any) -> None:
    world = paper({"here": [0]}, samples=10, mode="cpu_sync").load().finish()  # one batch of 10 ms, an average of 1 ms
    result = world.told(hub_messages.Finished)[0].result
    assert (result.rounds, result.ranks[0].wait_s, result.sync_share) == (1, 0.001, 0.0909)
    spent = [each for row in world.told(hub_messages.Timeline) for each in row.spent]
    assert sum(each.averaging_s for each in spent) == 0.001
    assert world.told(hub_messages.Progress)[-1].sync_share == 0.0909


def test_a_loss_that_is_not_finite_is_said_once_per_rank(paper: Any) -> None:
    world = paper({"here": [0]}, mode="cpu_sync").load()
    for _ in range(2):
        plan = world.plans[0]
        world.tell(FromRank(0, Deposit(plan.window, 1, 10, 10.0, not_finite=True)))
        world.decide()
    assert [notice.text for notice in world.told(hub_messages.Notice)] == ["rank 0: a loss is not finite (window 0)"]


def test_stop_in_the_middle_hands_over_what_there_is(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=1000).load()
    for _ in range(3):
        world.step()
    world.tell(hub_messages.Stop("interrupted"))
    failed = world.failure()
    assert (failed.code, failed.why) == ("stopped", "interrupted")
    assert (failed.result.samples, failed.result.verdict) == (60, "failed")
    assert world.over


def test_nothing_is_said_once_it_is_over(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load().finish()
    assert world.tick(9.0) == []
    assert not [o for o in world.said if isinstance(o, SendRank) and isinstance(o.message, Dismiss)]


def test_a_round_that_never_ends_fails_the_run(paper: Any) -> None:
    world = paper({"a": [0], "b": [1]}).load()
    world.deposit(0)
    world.deposit(1)
    assert isinstance(world.said[-1], StartRound)
    world.tick(299.0)
    assert not world.over
    world.tick(2.0)
    assert world.failure().code == "round-stalled"


def test_a_round_over_a_slow_link_may_take_as_long_as_it_moves(paper: Any) -> None:
    world = paper({"a": [0], "b": [1]}).load()
    world.deposit(0)
    world.deposit(1)
    for moved in range(1, 5):
        world.now += 250.0
        world.tell(Tick(moved))
        assert not world.over
    world.now += 301.0
    world.tell(Tick(4))
    assert world.failure().why == "round 1 has not ended, and nothing of it has moved for 300 s"


def test_a_command_that_averages_nothing_is_no_failure(paper: Any) -> None:
    world = paper({"here": [0, 1]})
    world.form()
    for rank in (0, 1):
        assert world.tell(hub_messages.RankGone(rank, True, "exit 0", 0)) == []


def test_nor_is_the_end_of_its_host_while_others_are_still_at_it(paper: Any) -> None:
    world = paper({"a": [0], "b": [1]})
    world.form()
    for host, ranks in world.hosts.items():
        world.tell(RelayJoined(host, ranks))
    world.tell(hub_messages.RankGone(0, True, "exit 0", 0))
    world.tell(RelayLost("a", "the other side closed it", None))
    assert world.tick(9.0) == [] and not world.over
    world.tell(hub_messages.RankGone(1, True, "exit 0", 0))
    assert world.tell(hub_messages.Stop("done")) == [Exit(0)]


def test_but_not_when_another_rank_wants_to_train(paper: Any) -> None:
    world = paper({"here": [0, 1]})
    world.form()
    world.tell(hub_messages.RankGone(0, True, "exit 0", 0))
    world.tell(FromRank(1, world.hello(1)))
    assert world.failure().what == "cannot begin: rank 0 has ended already"
    assert world.told(hub_messages.RankIn) == [hub_messages.RankIn(1)], "the launcher says who waits for whom"

"""When averages are saved, what is said of it, and runs that go on from one."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_planes.coordinator.hub_events import (
    AppendMetrics,
    CheckpointFailed,
    CheckpointFound,
    CheckpointWritten,
    CopyAverage,
    Expel,
    FindCheckpoint,
    Rescue,
    WriteCheckpoint,
)
from flodl_planes.coordinator.transport_events import FromRank, RankEnding, RelayLost, RoundDone, StateWhole
from flodl_planes.records.cursor import Cursor
from flodl_wire.faults import Broken
from flodl_wire.hub_messages import Expelled, Finished, HubFailed, Notice, RankGone, Stop
from flodl_wire.plane_messages import Deposit, Leaving, State
from flodl_wire.result import EpochResult


def saves(world: Any) -> list[WriteCheckpoint]:
    return [order for order in world.said if isinstance(order, WriteCheckpoint)]


def rounds_kept(world: Any) -> list[int]:
    return [round.round for round in world.rounds if round.keep]


def step(world: Any, times: int = 1) -> None:
    for _ in range(times):
        world.step()


def epoch_rows(world: Any) -> list[dict[str, Any]]:
    rows = [order.row for order in world.said if isinstance(order, AppendMetrics)]
    return [row for row in rows if row["kind"] == "epoch"]


def cursor(**changed: Any) -> Cursor:
    plain: dict[str, Any] = {
        "run": "r0", "mode": "cpu_cadence", "reason": "checkpoint", "epoch": 1, "epochs": 3, "merged": [[0, 30]],
        "seed": 0, "dataset": 100, "batch_size": 10, "rounds": 7, "world_size": 2, "loss_sum": 60.0, "loss_samples": 30,
    }  # fmt: skip
    return Cursor(**{**plain, **changed})


def test_every_second_epoch_ends_with_a_save_and_the_last_one_in_any_case(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=5, changes={"checkpoint_every": 2}).load().finish()
    assert [(save.cursor.epoch, save.cursor.reason) for save in saves(world)] == [
        (2, "checkpoint"), (4, "checkpoint"), (5, "finished"),
    ]  # fmt: skip
    assert all(save.cursor.merged == [] for save in saves(world))
    assert [save.number for save in saves(world)] == rounds_kept(world)


def test_seconds_save_in_the_middle_of_an_epoch_with_the_spans_that_are_in(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=1000, changes={"checkpoint_every": 0.001}).load()
    while not saves(world):
        step(world)
    (save,) = saves(world)
    assert (save.cursor.epoch, save.cursor.merged) == (0, [[0, 60]])
    assert (save.cursor.loss_sum, save.cursor.loss_samples) == (120.0, 60)


def test_the_average_is_put_aside_before_the_next_round_and_written_when_the_state_is_whole(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=2, changes={"checkpoint_every": 1}).load()
    while not world.rounds[-1].keep:
        step(world)
    (owner,) = [int(rank) for rank, plan in world.rounds[-1].plans.items() if plan.save == world.rounds[-1].round]
    assert world.decide().count(CopyAverage()) == 1
    number = world.rounds[-1].round
    assert world.tell(FromRank(owner, State(number, 100))) == []
    assert saves(world) == []
    world.tell(StateWhole(owner, number))
    assert [(save.number, save.state_of) for save in saves(world)] == [(number, owner)]


def test_an_owner_that_dies_or_has_no_state_costs_the_state_only(paper: Any) -> None:
    dies = paper({"here": [0, 1]}, epochs=3, changes={"checkpoint_every": 1}).load()
    while not dies.rounds[-1].keep:
        step(dies)
    owner = next(int(rank) for rank, plan in dies.rounds[-1].plans.items() if plan.save)
    dies.decide()
    dies.kill(owner)
    assert [save.state_of for save in saves(dies)] == [None]
    mute = paper({"here": [0, 1]}, epochs=3, changes={"checkpoint_every": 1}).load().finish()
    assert [save.state_of for save in saves(mute)] == [None] * 3


def test_a_slow_disk_costs_checkpoints_and_never_rounds(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=4, changes={"checkpoint_every": 1}, disk=False).load()
    while world.coordinator.phase == "training":
        step(world)
    assert [save.cursor.epoch for save in saves(world)] == [1]
    while world.undone or world.to_apply:
        step(world)
    assert world.coordinator.phase == "closing", "the last average waits for the one in hand"
    world.tell(CheckpointWritten("x"))
    assert [save.cursor.epoch for save in saves(world)] == [1, 4]
    world.tell(CheckpointWritten("x"))
    assert world.told(Finished)


def test_a_full_disk_in_mid_run_is_a_sentence(paper: Any) -> None:
    world = paper({"here": [0]}, epochs=9, changes={"checkpoint_every": 1}, disk=False).load()
    while not saves(world):
        step(world)
    world.tell(CheckpointFailed(Broken("checkpoint-failed", "cannot write x", "No space left on device")))
    said = "cannot write x: No space left on device; training goes on, "
    assert said + "without a checkpoint so far" in [notice.text for notice in world.told(Notice)]
    for outcome in (
        CheckpointWritten("x"),
        CheckpointFailed(Broken("checkpoint-failed", "cannot write x", "No space left on device")),
    ):
        before = len(saves(world))
        while len(saves(world)) == before:
            step(world)
        world.tell(outcome)
    assert said + "and the checkpoint before it is kept" in [notice.text for notice in world.told(Notice)]
    world.disk = True
    assert world.finish().told(Finished)


def test_a_run_goes_on_where_a_checkpoint_stood_with_another_number_of_ranks(paper: Any) -> None:
    world = paper({"a": [0, 1], "b": [2]}, epochs=3, changes={"resume": "auto"})
    world.found = CheckpointFound(cursor(), "runs/r0/checkpoint.safetensors", state=True)
    world.load()
    (asked,) = [order for order in world.said if isinstance(order, FindCheckpoint)]
    assert asked.said == "auto"
    first = world.rounds[0]
    assert (first.given, first.state, first.alone, first.weights) == (True, True, False, {"0": 1.0})
    assert {plan.epoch for plan in first.plans.values()} == {1}
    assert {plan.step for plan in first.plans.values()} == {13}
    world.finish()
    result = world.told(Finished)[0].result
    assert sorted(world.merged[1]) == list(range(30, 100)) and sorted(world.merged[2]) == list(range(100))
    assert [(epoch.epoch, epoch.samples) for epoch in result.epochs] == [(1, 100), (2, 100)]
    assert result.epochs[0].loss == 2.0
    assert result.samples == 170 and result.resumed == "runs/r0/checkpoint.safetensors"
    assert saves(world)[-1].cursor.rounds == 7 + world.rounds[-1].round
    assert "goes on from" in world.told(Notice)[0].text


def test_an_epoch_that_the_run_before_did_not_live_to_see_evaluated_is_evaluated_at_once(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=3, evaluates=True, changes={"resume": "auto"})
    history = [EpochResult(0, 2.0, 1.0, 100)]
    world.found = CheckpointFound(cursor(merged=[], loss_sum=0.0, loss_samples=0, history=history), "x")
    world.load()
    assert [plan.evaluate for plan in world.rounds[0].plans.values()].count(0) == 1
    world.finish()
    assert [(row["epoch"], row["eval"]) for row in epoch_rows(world)] == [(n, {"accuracy": 0.5}) for n in range(3)]
    assert all(epoch.eval == {"accuracy": 0.5} for epoch in world.told(Finished)[0].result.epochs)


@pytest.mark.parametrize("mode", ["cpu_sync", "cpu_cadence", "cpu_async", "nccl_cadence"])
def test_a_run_that_owes_nothing_but_its_last_evaluation_is_evaluated_saved_and_done(paper: Any, mode: str) -> None:
    world = paper({"a": [0, 1], "b": [2]}, epochs=3, mode=mode, evaluates=True, changes={"resume": "auto"})
    history = [EpochResult(epoch, 2.0, 1.0, 100, {"accuracy": 0.4} if epoch < 2 else None) for epoch in range(3)]
    world.found = CheckpointFound(cursor(epoch=3, merged=[], loss_sum=0.0, loss_samples=0, history=history), "x")
    world.load().finish()
    result = world.told(Finished)[0].result
    assert [epoch.eval for epoch in result.epochs] == [{"accuracy": 0.4}] * 2 + [{"accuracy": 0.5}]
    assert (result.samples, world.merged, len(world.rounds)) == (0, {}, 1)
    assert [row["epoch"] for row in epoch_rows(world)] == [2]
    (save,) = saves(world)
    assert (save.cursor.epoch, save.cursor.reason, save.cursor.rounds) == (3, "finished", 7)
    assert "only the last evaluation is missing" in world.told(Notice)[0].text


def test_its_evaluator_may_die_as_well(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=3, evaluates=True, changes={"resume": "auto"})
    history = [EpochResult(epoch, 2.0, 1.0, 100) for epoch in range(3)]
    world.found = CheckpointFound(cursor(epoch=3, merged=[], loss_sum=0.0, loss_samples=0, history=history), "x")
    world.load()
    world.kill(min(world.undone))
    assert world.finish().told(Finished)[0].result.epochs[-1].eval == {"accuracy": 0.5}


def test_a_script_that_breaks_in_its_last_evaluation_loses_nothing(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=2, evaluates=True, changes={"checkpoint_every": None}).load()
    while world.coordinator.phase == "training":
        step(world)
    (rescue,) = [order for order in world.tell(RankGone(0, False, "exit 1", 1)) if isinstance(order, Rescue)]
    assert rescue.number == world.rounds[-1].round
    assert rescue.cursor.owes_evaluation(2) and rescue.cursor.reason == "run_failed"


def test_an_evaluation_whose_model_is_gone_is_reported_as_missing(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=3, evaluates=True, changes={"resume": "auto"})
    world.found = CheckpointFound(cursor(history=[EpochResult(0, 2.0, 1.0, 100)]), "x")
    world.load().finish()
    assert [(row["epoch"], row["eval"] is None) for row in epoch_rows(world)] == [(0, True), (1, False), (2, False)]
    assert epoch_rows(world)[0]["merged"] == [[0, 100]]


def test_what_was_evaluated_before_is_not_told_again(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=3, evaluates=True, changes={"resume": "auto"})
    world.found = CheckpointFound(cursor(history=[EpochResult(0, 2.0, 1.0, 100, {"accuracy": 0.4})]), "x")
    world.load().finish()
    assert [row["epoch"] for row in epoch_rows(world)] == [1, 2]


def test_what_is_rescued_knows_that_an_evaluation_is_not_in(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=2, evaluates=True).load()
    while not any(plan.evaluate == 0 for plan in world.rounds[-1].plans.values()):
        step(world)
    world.decide()
    (rescue,) = [order for order in world.tell(Stop("enough")) if isinstance(order, Rescue)]
    assert (rescue.cursor.epoch, rescue.cursor.merged) == (1, [])
    assert rescue.cursor.unevaluated is not None and rescue.cursor.unevaluated.epoch == 0


def test_a_script_that_breaks_before_the_hub_knows_its_round_whole_costs_no_average(paper: Any) -> None:
    world = paper({"here": [0, 1]}, evaluates=True).load()
    while world.open is None or not world.open.confirm:
        step(world)
    last = world.open
    world.tell(FromRank(0, Leaving(error="ValueError: no figures")))
    world.tell(RankGone(0, False, "exit 1", code=1))
    assert world.told(HubFailed) == []
    orders = world.tell(RoundDone(last.round, last.attempt))
    (rescue,) = [order for order in orders if isinstance(order, Rescue)]
    assert (rescue.number, rescue.cursor.epoch) == (last.round, 1)
    assert world.failure().why == "ValueError: no figures"


def test_a_failure_does_not_wait_for_a_round_that_never_ends(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=1000).load()
    while world.open is None:
        step(world)
    world.tell(FromRank(0, Leaving(error="ValueError: bad")))
    world.tick(0.5)
    assert world.told(HubFailed) == []
    world.tick(0.6)
    assert world.failure().why == "ValueError: bad"


def test_an_epochs_very_end_is_the_next_ones_beginning(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=3, changes={"resume": "latest"})
    world.found = CheckpointFound(cursor(merged=[], loss_sum=0.0, loss_samples=0), "x")
    world.load().finish()
    assert sorted(world.merged) == [1, 2]
    assert all(sorted(done) == list(range(100)) for done in world.merged.values())


def test_nothing_to_go_on_from_is_a_beginning(paper: Any) -> None:
    world = paper({"here": [0]}, changes={"resume": "auto"})
    world.found = CheckpointFound(None, notes=("the last run, r0, is complete: a new one begins",))
    world.load()
    assert not world.rounds[0].given
    assert "is complete" in world.told(Notice)[0].text


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda world: world.tell(Stop("interrupted by SIGINT")), "graceful_shutdown"),
        (lambda world: world.kill(1), "max_failure_exceeded"),
        (lambda world: world.tell(RankGone(1, False, "exit 3", 3)), "run_failed"),
        (lambda world: world.cut("here"), "all_ranks_lost"),
        (lambda world: world.kill(1), "single_survivor"),
        (lambda world: (world.deposit(1), world.tick(301.0)), "reduce_stall"),
    ],
)
def test_a_run_that_fails_saves_its_last_average_once(paper: Any, end: Any, reason: str) -> None:
    limit = None if reason in ("all_ranks_lost", "single_survivor") else 1
    mode = "nccl_cadence" if reason == "single_survivor" else "cpu_cadence"
    world = paper({"here": [0, 1]}, samples=1000, max_failure=limit, mode=mode).load()
    step(world, 4)
    end(world)
    (rescue,) = [order for order in world.said if isinstance(order, Rescue)]
    assert rescue.cursor.reason == reason
    assert rescue.cursor.merged == [[0, 60]]


def test_what_is_on_the_disk_already_is_not_saved_again(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=2, changes={"checkpoint_every": 1}).load()
    while not saves(world):
        step(world)
    world.tell(Stop("interrupted"))
    assert not [order for order in world.said if isinstance(order, Rescue)]


def poison(world: Any, rank: int) -> list[Any]:
    plan = world.plans[rank]
    world.undone.discard(rank)
    world.done[rank] = plan
    samples = sum(count for _, count in plan.spans)
    deposit = Deposit(plan.window, samples // 10, samples, 10.0, poisoned="layer.weight")
    return world.tell(FromRank(rank, deposit))  # type: ignore[no-any-return]


def test_work_that_is_not_finite_ends_the_run_and_names_rank_and_tensor(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=1000).load()
    poison(world, 1)
    failed = world.failure()
    assert (failed.code, failed.rank) == ("not-finite", 1)
    assert "rank 1 on here" in failed.what and "layer.weight" in failed.why


def test_with_skip_it_is_left_out_and_its_samples_are_said_to_be_undone(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=1000, changes={"nan": "skip"}).load()
    undone = sum(count for _, count in world.plans[1].spans)
    world.deposit(0)
    poison(world, 1)
    assert world.rounds[-1].weights == {"0": 1.0} and world.rounds[-1].leader == 0
    world.finish()
    result = world.told(Finished)[0].result
    assert (result.undone, result.samples) == (undone, 1000)
    assert any("are left out" in notice.text for notice in world.told(Notice))


def test_a_run_of_which_nothing_is_finite_never_ends_well(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=1000, changes={"nan": "skip"}).load()
    poison(world, 0)
    poison(world, 1)
    assert world.failure().what == "cannot go on training: no rank's model is finite any more"


def test_a_rank_that_stands_still_is_ended_after_its_time_and_dies_as_others_do(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=1000, changes={"stall_timeout": 20.0}).load()
    world.deposit(0)
    world.deposit(1)
    world.decide()
    world.deposit(0)
    assert not [order for order in world.tick(15) if isinstance(order, Expel)]
    assert [order for order in world.tick(6) if isinstance(order, Expel)] == [Expel(1)]
    assert not world.told(Expelled), "its relay may know better"
    world.tell(RankEnding(1))
    assert world.told(Expelled) == [Expelled(1, pytest.approx(21.0, abs=0.1))]
    world.tick(3)  # until its end is heard of: it is told as the launcher was told of it
    world.kill(1)
    assert any("it stood still for 21 s and was ended" in notice.text for notice in world.told(Notice))
    assert world.finish().told(Finished)[0].result.degraded


@pytest.mark.parametrize(
    ("hosts", "every", "expelled"),
    [
        pytest.param({"here": [0, 1]}, 0.001, [Expel(0), Expel(1)], id="their relay knows which of them it is"),
        pytest.param({"here": [0, 1]}, None, [], id="decided as soon as it was ordered"),
        pytest.param({"a": [0], "b": [1]}, 0.001, [], id="made of what they have handed in"),
    ],
)
def test_who_stands_still_in_an_average_that_is_to_be_saved_is_ended(
    paper: Any, hosts: dict[str, list[int]], every: float | None, expelled: list[Expel]
) -> None:
    terms = {"stall_timeout": 20.0, "checkpoint_every": every}
    world = paper(hosts, samples=1000, changes=terms).load()
    world.deposit(0)
    world.deposit(1)
    if every is None:
        world.decide()
    assert (world.open is not None) == (every is not None)
    assert not [order for order in world.tick(15) if isinstance(order, Expel)]
    if every is not None:
        assert [order for order in world.tick(6) if isinstance(order, Expel)] == expelled


def test_ranks_that_were_to_be_ended_and_were_not_die_of_something_else(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=1000, changes={"stall_timeout": 10.0}).load()
    assert [order for order in world.tick(11) if isinstance(order, Expel)] == [Expel(0), Expel(1)]
    world.tell(RelayLost("here", "no sign of life for 15 s", None))
    world.tick(3)
    assert "host here lost: no sign of life" in world.failure().why and "stood still" not in world.failure().why


def test_a_rank_that_stands_still_at_the_very_end_is_ended_too(paper: Any) -> None:
    for until in ("closing", "leaving"):
        world = paper({"here": [0, 1]}, changes={"stall_timeout": 20.0})
        world.load()
        while world.coordinator.phase == "training":
            step(world)
        while world.undone:
            step(world)
        world.applied(0)
        if until == "leaving":
            world.mute = {1}  # gets its result, and says no goodbye
            world.applied(1)
        assert world.coordinator.phase == until
        assert [order for order in world.tick(21) if isinstance(order, Expel)] == [Expel(1)]
        world.kill(1)
        assert world.told(Finished)[0].result.samples == 100


@pytest.mark.parametrize("mode", ["cpu_sync", "cpu_cadence", "cpu_async"])
def test_a_save_that_falls_due_at_any_moment_does_not_stand_in_the_way_of_the_last_one(paper: Any, mode: str) -> None:
    for samples in range(200, 500, 10):  # so the last free round of an epoch falls on every beat of the saves
        terms = {"checkpoint_every": 0.001}
        world = paper({"here": [0, 1]}, samples=samples, epochs=2, mode=mode, changes=terms).load().finish()
        assert world.told(Finished)
        assert saves(world)[-1].cursor.reason == "finished"


def test_what_was_left_out_before_a_resume_is_still_left_out_in_the_next_checkpoint(paper: Any) -> None:
    found = CheckpointFound(cursor(skipped=[[0, 10]]), "before")
    world = paper({"here": [0, 1]}, epochs=3, changes={"resume": "auto"}, found=found).load()
    while world.coordinator.training.decided_round < 1:
        world.step()
    world.tell(Stop("enough"))
    (rescue,) = [order for order in world.said if isinstance(order, Rescue)]
    assert rescue.cursor.skipped == [[0, 10]] and rescue.cursor.samples > 30

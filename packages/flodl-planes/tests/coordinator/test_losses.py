"""Ranks, relays and hosts that go: what is tolerated, what is dealt again, what ends the run."""

from typing import Any

import pytest

from flodl_planes.coordinator.hub_events import RoundNotBegun, SendRank
from flodl_planes.coordinator.transport_events import FromRank, RankLost, RelayLost, RoundDone
from flodl_wire.hub_messages import Finished, Notice, RankGone, Trained
from flodl_wire.plane_messages import Dismiss, Leaving


def dealt(round: Any) -> list[list[int]]:
    return sorted(span for plan in round.plans.values() for span in plan.spans)


def test_a_dead_ranks_samples_go_to_the_others(paper: Any) -> None:
    world = paper({"here": [0, 1, 2]}).load()
    world.kill(1)
    (notice,) = world.told(Notice)
    sentence = "rank 1 on here is lost (killed by signal 9); 30 samples of it go to the others; 2 of 3 ranks go on"
    assert notice.text == sentence
    world.deposit(0)
    world.deposit(2)
    assert dealt(world.rounds[1]) == [[30, 20], [50, 10], [90, 10]]
    world.finish()
    result = world.told(Finished)[0].result
    assert (result.degraded, result.why) == (True, "rank 1 on here: killed by signal 9")


def test_a_rounds_row_tells_of_those_who_were_in_it(paper: Any) -> None:
    world = paper({"here": [0, 1, 2]}, samples=300).load()
    while not world.rows("round"):
        world.step()
    world.kill(1)
    world.tick(1.0)
    while len(world.rows("round")) < 2:
        world.step()
    before, after = world.rows("round")
    assert (list(before["batches"]), list(before["ms"])) == (["0", "1", "2"], ["0", "1", "2"])
    assert (list(after["batches"]), list(after["ms"])) == (["0", "2"], ["0", "2"]), "the dead one's last window is over"


def test_an_accepted_deposit_stays_merged_when_its_rank_dies(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load()
    world.deposit(1)
    world.kill(1)
    world.deposit(0)
    assert world.rounds[1].weights == {"0": 0.5, "1": 0.5}
    assert set(world.rounds[1].plans) == {"0"}
    world.finish()
    assert sorted(world.merged[0]) == list(range(100))


def test_a_deposit_is_gone_with_its_host(paper: Any) -> None:
    world = paper({"a": [0], "b": [1]}).load()
    world.deposit(1)
    world.cut("b")
    world.deposit(0)
    assert (world.rounds[1].weights, world.rounds[1].alone) == ({"0": 1.0}, True)
    world.finish()
    assert sorted(world.merged[0]) == list(range(100))


def test_a_host_lost_in_a_round_means_the_same_round_again_without_it(paper: Any) -> None:
    world = paper({"a": [0], "b": [1], "c": [2]}).load()
    for rank in (0, 1, 2):
        world.deposit(rank)
    world.cut("b")
    again = world.rounds[-1]
    assert (again.round, again.attempt, again.weights) == (1, 1, {"0": 0.5, "2": 0.5})
    assert world.open_hosts == ["a", "c"]
    assert dealt(again)[0][0] == 30  # rank 1's positions are dealt first
    world.finish()


def test_word_of_an_attempt_that_was_replaced_decides_nothing(paper: Any) -> None:
    world = paper({"a": [0], "b": [1], "c": [2]}).load()
    for rank in (0, 1, 2):
        world.deposit(rank)
    world.cut("b")
    again, training = world.open, world.coordinator.training
    world.tell(RoundDone(1, 0))
    assert world.open is again
    assert (training.decided_round, training.ledger.merged, training.open.attempt) == (0, 0, 1)
    world.decide()
    assert (training.decided_round, training.ledger.merged) == (1, 60)
    world.tell(RoundDone(1, 1))
    assert (training.decided_round, training.ledger.merged) == (1, 60), "nor does the same word again"
    world.finish()
    assert sorted(world.merged[0]) == list(range(100))


def test_a_dead_anchor_paces_nobody_any_more(paper: Any) -> None:
    world = paper({"here": [0, 1, 2]}, samples=5000, ms={0: 5.0, 1: 10.0, 2: 40.0}.__getitem__).load()
    while world.coordinator.training.decided_round < 2:
        world.step()
    dealer = world.coordinator.training.dealer
    assert dealer.anchor_rank == 2
    world.kill(2)
    assert (dealer.anchor_rank, sorted(dealer.cadence.counts)) == (1, [0, 1])


def test_a_second_host_lost_in_the_same_round_is_another_attempt(paper: Any) -> None:
    world = paper({"a": [0], "b": [1], "c": [2]}).load()
    for rank in (0, 1, 2):
        world.deposit(rank)
    world.cut("b")
    world.cut("c")
    assert (world.rounds[-1].round, world.rounds[-1].attempt, world.rounds[-1].alone) == (1, 2, True)
    world.finish()
    assert sorted(world.merged[0]) == list(range(100))


def test_a_round_is_not_started_again_before_the_launcher_has_said_what_happened(paper: Any) -> None:
    world = paper({"a": [0], "b": [1, 2]}).load()
    for rank in (0, 1, 2):
        world.deposit(rank)
    world.tell(RelayLost("b", "reset", 1))
    world.tell(RankGone(1, False, "killed by signal 9"))
    assert len(world.rounds) == 2
    world.tell(RankGone(2, False, "host b lost"))
    assert (world.rounds[-1].round, world.rounds[-1].attempt) == (1, 1)


def test_a_host_of_whose_loss_the_launcher_knew_first_means_another_attempt_too(paper: Any) -> None:
    world = paper({"a": [0], "b": [1]}).load()
    world.deposit(0)
    world.deposit(1)
    world.cut("b", launcher_first=True)
    assert (world.rounds[-1].round, world.rounds[-1].attempt, world.rounds[-1].weights) == (1, 1, {"0": 1.0})
    world.finish()


def test_a_round_that_finds_a_host_gone_begins_again_once_the_loss_is_told(paper: Any) -> None:
    world = paper({"a": [0], "b": [1]}).load()
    world.deposit(0)
    world.deposit(1)
    assert world.tell(RoundNotBegun(1)) == []
    world.tell(RelayLost("b", "reset", None))
    assert len(world.rounds) == 2
    world.tell(RankGone(1, False, "host b lost"))
    assert (world.rounds[-1].round, world.rounds[-1].attempt, world.rounds[-1].weights) == (1, 1, {"0": 1.0})


def test_silence_without_a_word_is_a_death_after_the_grace(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load()
    world.tell(RankLost(1, False))
    world.tick(1.0)
    assert not world.told(Notice)
    world.tick(1.5)
    assert "its connection to the relay closed" in world.told(Notice)[0].text


def test_a_program_that_exits_non_zero_fails_the_run(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load()
    world.tell(RankLost(1, False))
    world.tell(RankGone(1, False, "exit 3", 3))
    failed = world.failure()
    assert (failed.code, failed.what, failed.why, failed.rank) == ("rank-failed", "rank 1 on here failed", "exit 3", 1)
    assert failed.result.verdict == "failed"
    assert [o.rank for o in world.said if isinstance(o, SendRank) and isinstance(o.message, Dismiss)] == [0]


def test_a_script_that_raises_fails_the_run(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load()
    world.tell(FromRank(0, Leaving("ValueError: no")))
    assert (world.failure().why, world.failure().rank) == ("ValueError: no", 0)


@pytest.mark.parametrize("event", [FromRank(1, Leaving()), RankGone(1, True, "exit 0", 0)])
def test_leaving_before_the_end_fails_the_run(paper: Any, event: Any) -> None:
    world = paper({"here": [0, 1]}).load()
    world.tell(event)
    assert world.failure().code == "left-early"


@pytest.mark.parametrize(("max_failure", "deaths"), [(1, 1), (2, 2), (0.5, 2), (0.3, 2), (0.25, 1), (None, 4)])
def test_too_many_deaths_end_the_run(paper: Any, max_failure: int | float | None, deaths: int) -> None:
    world = paper({"here": [0, 1, 2, 3]}, max_failure=max_failure).load()
    for rank in range(deaths):
        assert not world.over
        world.kill(rank)
    failed = world.failure()
    assert failed.code == ("all-lost" if max_failure is None else "below-tolerance")
    assert failed.rank == deaths - 1
    assert "killed by signal 9" in failed.why


def test_any_loss_before_training_ends_the_run(paper: Any) -> None:
    world = paper({"here": [0, 1]})
    world.form()
    world.tell(RankGone(0, False, "killed by signal 9"))
    assert (world.failure().code, world.failure().rank) == ("lost-before-training", 0)


def test_when_the_evaluating_rank_dies_another_evaluates(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=2, evaluates=True, ms={0: 1.0, 1: 10.0}.__getitem__).load()
    while not any(plan.evaluate is not None for plan in world.plans.values()):
        world.step()
    assert world.plans[0].evaluate == 0
    world.kill(0)
    world.finish()
    result = world.told(Finished)[0].result
    assert [epoch.eval for epoch in result.epochs] == [{"accuracy": 0.5}, {"accuracy": 0.5}]


def test_when_the_last_evaluation_dies_with_its_rank_another_is_asked_at_once(paper: Any) -> None:
    world = paper({"here": [0, 1]}, evaluates=True).load()
    while world.coordinator.phase == "training":
        world.step()
    asked = next(rank for rank, plan in world.plans.items() if plan.evaluate == 0)
    before = world.plans[asked].window
    world.kill(asked)
    assert (world.plans[1 - asked].evaluate, world.plans[1 - asked].window) == (0, before + 2)
    world.finish()
    assert world.told(Finished)[0].result.epochs[-1].eval == {"accuracy": 0.5}


def test_a_rank_that_dies_after_the_last_average_does_not_hold_the_others(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load()
    while world.coordinator.phase == "training":
        world.step()
    world.kill(1)
    world.finish()
    assert world.told(Finished)[0].result.degraded


def test_a_rank_that_was_told_to_leave_and_dies_instead_is_missed_by_nobody(paper: Any) -> None:
    world = paper({"here": [0, 1]}, max_failure=1, mute={1}).load()
    while world.coordinator.phase != "leaving":
        assert world.told(Trained) == []
        world.step()
    assert len(world.told(Trained)) == 1 and world.told(Finished) == []
    world.kill(1)
    (finished,) = world.told(Finished)
    assert (finished.result.degraded, finished.result.why) == (False, "")


def test_losing_everyone_after_the_last_average_is_still_a_failure(paper: Any) -> None:
    world = paper({"here": [0, 1]}, evaluates=True).load()
    while world.coordinator.phase == "training":
        world.step()
    for rank in (0, 1):
        world.tell(RankLost(rank, False))
    world.tick(3.0)
    assert world.failure().code == "all-lost"


def test_a_relay_that_goes_after_the_goodbyes_is_no_news(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load().finish()
    assert world.tell(RelayLost("here", "closed")) == []

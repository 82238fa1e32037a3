"""Behind the training: its result is written, and the ranks leave, or do not."""

from __future__ import annotations

import pytest
from window_worlds import failed, finish, result, trained

from flodl_window import events as ev
from flodl_wire.hub_messages import Finished, RankGone, Trained
from flodl_wire.join_messages import Abort, Beat, RankExited


def test_agents_hear_with_every_beat_that_training_is_whole() -> None:
    world = trained()
    assert [effect.message for effect in world.run.beats()] == [Beat()] * 2
    world.hub(Trained())
    assert [effect.message for effect in world.run.beats()] == [Beat(trained=True)] * 2
    assert world.run.phase.value == "training" and "leaving" in world.run.why


@pytest.mark.parametrize("left", [False, True])
def test_a_rank_that_stood_still_behind_its_training_is_no_loss_to_it_and_the_verdict_names_it(left: bool) -> None:
    world = trained()
    world.hub(Trained())
    if left:
        world.hub(Finished(result()))
    world.says("node-a", RankExited(0, None, 9, stood_still_s=15.3))
    assert world.told(RankGone) == [RankGone(0, False, "never exited: stopped by a signal for 15 s, then killed")]
    finish(world)
    assert world.run.phase.value == "done" and world.run.world is not None and not world.run.world.degraded
    assert world.run.why == (
        "training finished, every host has left; after it: "
        "rank 0 on node-a never exited: stopped by a signal for 15 s, then killed"
    )


def test_a_wrapper_s_exit_code_is_not_held_against_a_rank_that_stood_still() -> None:
    world = trained()
    world.hub(Trained())
    world.says("node-a", RankExited(0, 137, stood_still_s=15.3))
    finish(world)
    assert world.run.phase.value == "done" and "never exited" in world.run.why


@pytest.mark.parametrize("left", [False, True])
def test_an_interrupt_behind_the_training_ends_the_programs_and_says_what_is_whole(left: bool) -> None:
    world = trained()
    world.hub(Trained())
    if left:
        world.hub(Finished(result()))
    world.do(ev.Interrupted("SIGINT"))
    assert failed(world) == "interrupted by SIGINT (training was done, its checkpoint is whole)"
    assert world.run.exit_code == 130 and world.sent(Abort), "a program still ran, and it may have had more to do"


def test_a_program_that_fails_behind_the_training_fails_the_run_all_the_same() -> None:
    world = trained()
    world.hub(Trained())
    world.says("node-a", RankExited(0, 3))
    assert failed(world) == "rank 0 on node-a exit 3"


def test_a_coordinator_that_is_lost_before_every_rank_has_left_is_lost() -> None:
    world = trained()
    world.hub(Trained())
    world.do(ev.HubEnded("killed by signal 9"))
    assert failed(world).startswith("coordinator lost")

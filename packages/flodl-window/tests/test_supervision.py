"""From formation to the verdict: what hosts, the fan-out and the coordinator report, and what the run makes of it."""

from __future__ import annotations

import pytest
from window_worlds import Driven, cluster, end_children, failed, finish, formed, hello, result, trained

from flodl_window import events as ev
from flodl_wire import exits
from flodl_wire.hub_messages import Expelled, Finished, HubFailed, Notice, RankGone, RankIn, RelayIn, Stop
from flodl_wire.join_messages import (
    Abort,
    Bye,
    HostFault,
    RankExited,
    RelayExited,
    WorldFormed,
)
from flodl_wire.join_messages import Step as StepMessage
from flodl_wire.specs import FanoutEvent

# the good end


def test_a_run_is_done_when_training_is_finished_and_every_link_has_closed() -> None:
    world = trained()
    world.hub(Finished(result()))
    world.says("node-a", RankExited(0, 0))
    world.says("node-a", Bye())
    world.gone("node-a")
    world.at(world.now + 5)
    assert world.run.phase.value == "training", "node-b is still there"
    world.says("node-b", RankExited(1, 0))
    world.says("node-b", Bye())
    world.gone("node-b")
    world.at(world.now + 0.25)
    assert world.run.phase.value == "done" and world.run.exit_code == 0
    assert ev.EndFanout() in world.effects and world.told(Stop)[0].reason == "done"
    assert world.concluded is None
    end_children(world)
    assert world.concluded == 0


def test_a_goodbye_is_answered_by_closing() -> None:
    world = trained()
    out = world.says("node-a", Bye())
    assert ev.Shut(world.links["node-a"]) in out


def test_a_command_that_averages_nothing_is_a_fair_command() -> None:
    world = formed("cpu:2")
    for rank in (0, 1):
        world.says("node-a", RankExited(rank, 0))
    world.says("node-a", RelayExited(1))
    world.says("node-a", Bye())
    world.gone("node-a")
    world.at(1)
    assert world.run.phase.value == "done" and "without averaging" in world.run.why
    assert world.told(RankGone) == [RankGone(rank, True, "exit 0", 0) for rank in (0, 1)], (
        "or their relay would be a loss"
    )


def test_a_rank_that_leaves_before_training_leaves_the_others_waiting_and_fails_the_run() -> None:
    world = formed("cpu:2")
    world.hub(RelayIn("node-a"))
    world.hub(RankIn(0))
    world.says("node-a", RankExited(1, 0))
    assert failed(world) == "rank 1 on node-a exit 0 before training began: rank 0 would wait for it for ever"


def test_a_coordinator_that_never_reports_the_end_fails_the_run() -> None:
    world = trained("cpu:2")
    for rank in (0, 1):
        world.says("node-a", RankExited(rank, 0))
    world.says("node-a", Bye())
    world.gone("node-a")
    world.at(world.now + 6)
    assert "coordinator has not reported an end" in failed(world)


# ranks that end


@pytest.mark.parametrize("begun", [False, True])
def test_a_rank_that_exits_non_zero_fails_the_run_by_name(begun: bool) -> None:
    world = formed("cpu:2", "cpu:1")
    if begun:
        world.train()
    world.says("node-b", RankExited(2, 3, tail=["Traceback", "ValueError: no"]))
    assert failed(world) == "rank 2 on node-b exit 3"
    assert world.run.cause is not None and world.run.cause.tail[-1] == "ValueError: no"
    assert {message.reason for message in world.sent(Abort)} == {"rank 2 on node-b exit 3"} and len(
        world.sent(Abort)
    ) == 2
    assert world.run.exit_code == 1


def test_a_rank_killed_before_training_fails_the_run() -> None:
    world = formed("cpu:2")
    world.says("node-a", RankExited(1, None, 9))
    assert failed(world) == "rank 1 on node-a killed by signal 9 (out of memory?)"


def test_a_rank_the_kernel_killed_for_memory_is_said_to_be_so() -> None:
    world = formed("cpu:2")
    world.says("node-a", RankExited(1, None, 9, out_of_memory=True))
    assert failed(world) == "rank 1 on node-a killed by signal 9 (out of memory)"


def test_a_rank_killed_while_training_is_for_the_coordinator_to_judge() -> None:
    world = trained()
    world.says("node-b", RankExited(1, None, 9))
    assert world.run.phase.value == "training"
    gone = world.told(RankGone)[0]
    assert (gone.rank, gone.clean, gone.code) == (1, False, None)
    world.says("node-b", Bye())
    world.gone("node-b")
    finish(world)
    assert world.run.phase.value == "done" and world.run.world is not None and world.run.world.degraded
    assert "degraded: rank 1 lost" in world.run.why


def test_one_loss_too_many_is_named_by_the_loss_and_explained_by_the_tolerance() -> None:
    world = trained()
    world.says("node-b", RankExited(1, None, 9))
    world.hub(HubFailed("below-tolerance", "the cohort fell below tolerance", "1 of 2 ranks lost, max_failure is 1"))
    assert failed(world).startswith("rank 1 on node-b killed by signal 9 (out of memory?): the cohort fell below")


def test_a_death_is_named_even_when_the_coordinator_speaks_first() -> None:
    world = trained()
    world.hub(HubFailed("below-tolerance", "the cohort fell below tolerance", rank=1))
    assert world.run.phase.value == "training", "the rank's own report may be on its way"
    world.now += 0.2
    world.says("node-b", RankExited(1, None, 11))
    assert failed(world).startswith("rank 1 on node-b killed by signal 11 (SIGSEGV)")


def test_an_exit_is_named_even_when_the_coordinator_speaks_first() -> None:
    world = trained()
    world.hub(HubFailed("rank-failed", "rank 1 failed", "ValueError: no", rank=1))
    world.now += 0.2
    world.says("node-b", RankExited(1, 3))
    assert failed(world) == "rank 1 on node-b exit 3"


def test_a_coordinator_that_names_nobody_is_the_cause_and_what_follows_is_not() -> None:
    world = trained()
    world.hub(HubFailed("checkpoint-failed", "cannot write the checkpoint", "No space left on device"))
    world.says("node-b", RankExited(1, 1))
    assert failed(world) == "cannot write the checkpoint: No space left on device"


def test_a_coordinators_word_stands_when_no_report_comes() -> None:
    world = trained()
    world.hub(HubFailed("rank-failed", "rank 1 failed", "its loss is nan", rank=1))
    world.at(world.now + 1.25)
    assert failed(world) == "rank 1 failed: its loss is nan"


def test_ends_we_ordered_are_no_news() -> None:
    world = formed("cpu:2", "cpu:1")
    world.says("node-b", RankExited(2, 3))
    world.says("node-a", RankExited(0, None, 15, ordered=True))
    world.says("node-a", RankExited(1, None, 9, ordered=True))
    assert failed(world) == "rank 2 on node-b exit 3"


def test_a_crash_after_the_training_is_told_but_changes_nothing() -> None:
    world = trained()
    world.hub(Finished(result()))
    world.says("node-b", RankExited(1, None, 11))
    assert any("after the training was done" in line for line in world.said)
    world.says("node-b", Bye())
    world.gone("node-b")
    finish(world)
    assert world.run.phase.value == "done"


def test_a_program_that_fails_after_the_training_still_fails_the_run() -> None:
    world = trained()
    world.hub(Finished(result()))
    world.says("node-b", RankExited(1, 1))
    assert failed(world) == "rank 1 on node-b exit 1"


# relays, agents, hosts


def test_a_killed_relay_is_the_cause_and_its_ranks_ends_are_echoes() -> None:
    world = formed("cpu:2")
    world.says("node-a", RelayExited(None, 9))
    world.says("node-a", RankExited(0, 1))
    assert failed(world) == "relay on node-a killed by signal 9 (out of memory?)"


def test_a_relay_that_was_ended_behind_the_training_is_a_cause_only_by_the_ranks_it_had_not_told() -> None:
    world = formed("cpu:2")
    world.says("node-a", RelayExited(None, 9, stood_still_s=15.2))
    assert not world.run.phase.terminal
    world.says("node-a", RankExited(0, 1))
    assert failed(world) == "rank 0 on node-a exit 1"


def test_a_relay_that_only_follows_its_rank_is_not_the_cause() -> None:
    world = formed("cpu:1", "cpu:1")
    world.says("node-b", RelayExited(1))
    world.now += 0.1
    world.says("node-b", RankExited(1, 3))
    assert failed(world) == "rank 1 on node-b exit 3"


def test_a_coordinator_that_no_relay_hears_any_more_is_the_cause_whatever_ends_first() -> None:
    for first in ("relay", "rank"):
        world = trained("cpu:1", "cpu:1")
        gone = RankExited(0, 1, tail=["flodl: rank 0 cannot go on: this host's relay is gone (…)"])
        lost = RelayExited(exits.HUB_LOST, tail=["the hub is gone"])
        for report in (lost, gone) if first == "relay" else (gone, lost):
            world.says("node-a", report)
        world.says("node-b", RelayExited(exits.HUB_LOST))
        assert failed(world).startswith("coordinator lost")


def test_one_relay_that_loses_the_coordinator_is_a_host_lost_and_may_be_tolerated() -> None:
    world = trained("cpu:2", "cpu:1")
    world.says("node-b", RelayExited(exits.HUB_LOST))
    world.says("node-b", RankExited(2, 1))
    assert [gone.rank for gone in world.told(RankGone)] == [2]
    assert world.run.phase.value == "training"


def test_a_relay_that_dies_by_itself_is_named_when_the_agent_gives_up() -> None:
    world = formed("cpu:2")
    world.says("node-a", RelayExited(1))
    world.at(1)
    world.says("node-a", HostFault("relay-died", "the relay of node-a ended", "exit 1"))
    assert failed(world) == "relay on node-a exit 1"


def test_a_lost_rank_is_told_in_one_line_the_coordinators_and_a_lost_host_of_several_in_one_of_ours() -> None:
    world = trained("cpu:1", "cpu:2")
    before = len(world.said)
    world.says("node-a", RankExited(0, None, 9))
    world.hub(Notice("rank 0 on node-a is lost (killed by signal 9); 30 samples of it go to the others"))
    assert [line for line in world.said[before:] if "lost" in line or "killed" in line] == [world.said[-1]]
    world.gone("node-b")
    assert "ranks 1-2 lost" in world.said[-1]


def test_a_host_lost_while_training_is_tolerated_as_far_as_the_coordinator_says() -> None:
    world = trained("cpu:2", "cpu:1")
    world.gone("node-a")
    assert [gone.rank for gone in world.told(RankGone)] == [0, 1]
    assert world.run.phase.value == "training"
    world.do(ev.FanoutReported(FanoutEvent("exited", "node-a", -9)))
    finish(world)
    assert world.run.phase.value == "done" and world.run.world is not None and world.run.world.degraded


def test_an_agent_that_was_killed_is_named_with_its_end() -> None:
    world = formed("cpu:1", "cpu:1")
    world.gone("node-b")
    assert world.run.phase.value == "forming", "the fan-out may say more"
    world.now += 0.1
    world.do(ev.FanoutReported(FanoutEvent("exited", "node-b", -9, "last line")))
    assert failed(world) == "host node-b lost: its agent ended (killed by signal 9 (out of memory?))"


def test_a_link_that_breaks_without_a_word_is_a_lost_host() -> None:
    world = formed("cpu:1", "cpu:1")
    world.gone("node-b")
    world.at(1.5)
    assert failed(world).startswith("host node-b lost: its link closed without a goodbye")


def test_a_silent_host_is_lost_after_fifteen_seconds() -> None:
    world = formed("cpu:1", "cpu:1")
    world.train()
    quiet = world.links.pop("node-b")
    world.at(14)
    assert not world.told(RankGone)
    world.at(15.5)
    assert [gone.why for gone in world.told(RankGone)] == ["host node-b lost: no sign of life for 15 s"]
    assert ev.Shut(quiet, lost=True) in world.effects
    world.hub(HubFailed("below-tolerance", "too few", rank=1))
    assert failed(world).startswith("host node-b lost: no sign of life for 15 s")


def test_nobody_is_blamed_when_the_controller_itself_was_asleep() -> None:
    world = trained()
    world.now += 3600
    world.do(ev.Ticked())
    assert not world.told(RankGone)


def test_a_host_that_cannot_start_its_command_says_what_is_missing() -> None:
    world = formed("cpu:1", "cpu:1")
    world.says("node-b", HostFault("no-command", "cannot start rank 1", 'no such command "trian.py"', "install it"))
    assert failed(world) == 'host node-b: cannot start rank 1: no such command "trian.py"'
    assert world.run.cause is not None and world.run.cause.fix == "install it"


def test_a_host_that_leaves_with_ranks_unaccounted_for_is_lost() -> None:
    world = formed("cpu:1", "cpu:1")
    world.says("node-b", Bye("told to"))
    assert failed(world) == "host node-b left with rank 1 unaccounted for: told to"


# the fan-out


@pytest.mark.parametrize("code", [0, 255])
def test_an_agent_that_ends_before_the_world_forms_fails_the_run_at_once(code: int) -> None:
    world = Driven(cluster("cpu:1", "cpu:1"))
    world.do(ev.FanoutReported(FanoutEvent("started", "node-b", command="ssh node-b flodl-agent run")))
    world.do(ev.FanoutReported(FanoutEvent("exited", "node-b", code, "banner\nPermission denied (publickey).")))
    assert failed(world) == f"host node-b could not join: its agent ended (exit {code}): Permission denied (publickey)."
    assert world.run.cause is not None and "ssh node-b flodl-agent run" in world.run.cause.fix
    assert ev.EndFanout() in world.effects


def test_a_refused_roster_host_fails_the_run_with_the_refusal() -> None:
    world = Driven(cluster("cpu:1", "cpu:1"))
    world.hello(hello("node-b", 2))
    world.do(ev.FanoutReported(FanoutEvent("exited", "node-b", 1, "refused")))
    assert failed(world) == "cannot admit node-b: it offers 2 devices, the roster says 1"


def test_what_an_agent_prints_is_only_told_when_its_link_does_not_tell_it() -> None:
    world = Driven(cluster("cpu:1", "cpu:1"))
    world.do(ev.FanoutReported(FanoutEvent("line", "node-a", text="ssh: a warning")))
    assert world.said[-1] == "[node-a] ssh: a warning"
    world.hello(hello("node-a"))
    before = len(world.said)
    world.do(ev.FanoutReported(FanoutEvent("line", "node-a", text="an echo")))
    assert len(world.said) == before


def test_a_fan_out_that_dies_is_the_cause() -> None:
    world = formed("cpu:1", "cpu:1")
    world.says("node-a", HostFault("stdin-closed", "its stdin closed"))
    world.do(ev.FanoutEnded("killed by signal 9 (out of memory?)"))
    assert failed(world).startswith("fan-out lost: flodl-agent fanout killed by signal 9")


# the coordinator


def test_a_lost_coordinator_is_the_cause_and_what_follows_is_not() -> None:
    world = trained()
    world.do(ev.HubEnded("killed by signal 9 (out of memory?)"))
    world.says("node-a", RankExited(0, 1))
    assert failed(world) == "coordinator lost: flodl-planes hub killed by signal 9 (out of memory?)"
    assert len(world.sent(Abort)) == 2


def test_a_coordinator_that_cannot_start_fails_the_window_at_once_with_its_last_words() -> None:
    world = Driven(cluster("cpu:1", "cpu:1"), ready=False)
    world.do(ev.HubEnded("exit 1", ("flodl-planes: cannot load numpy",)))
    assert failed(world).endswith("flodl-planes hub exit 1: flodl-planes: cannot load numpy")


# the operator and the end


def test_an_interrupt_ends_the_run_with_130() -> None:
    world = trained()
    world.do(ev.Interrupted("SIGINT"))
    assert failed(world) == "interrupted by SIGINT" and world.run.exit_code == 130
    for host in list(world.links):
        world.gone(host)
    assert ev.EndFanout() in world.effects
    end_children(world)
    assert world.concluded == 130


def test_an_interrupt_before_the_world_forms_ends_the_fan_out_at_once() -> None:
    world = Driven(cluster("cpu:1", "cpu:1"))
    world.hello(hello("node-a"))
    out = world.do(ev.Interrupted("SIGTERM"))
    assert ev.EndFanout() in out and len(world.sent(Abort)) == 1


def test_what_does_not_end_by_itself_is_ended_by_force_within_ten_seconds() -> None:
    world = trained()
    world.do(ev.Interrupted("SIGINT"))
    world.at(world.now + 6.75)
    assert ev.EndFanout() not in world.effects, "agents may still be sending their last lines"
    world.at(world.now + 0.5)
    assert ev.EndFanout() in world.effects and ev.KillChildren() not in world.effects
    world.at(world.now + 2)
    assert ev.KillChildren() in world.effects and world.concluded == 130


def test_the_verdict_is_spoken_once() -> None:
    world = trained()
    world.says("node-b", RankExited(1, 3))
    world.says("node-a", RankExited(0, 4))
    world.do(ev.Interrupted("SIGINT"))
    world.do(ev.HubEnded("exit 1"))
    assert failed(world) == "rank 1 on node-b exit 3" and world.run.exit_code == 1


# mode torch


def test_a_torch_world_trains_when_its_last_process_runs_and_ends_when_all_exit() -> None:
    world = formed("cpu:1", "cpu:1", mode="torch")
    assert world.sent(WorldFormed)[0].relay is None
    world.says("node-a", StepMessage("rank 0 started", 0))
    assert world.run.phase.value == "forming"
    world.says("node-b", StepMessage("rank 1 started", 1))
    assert world.run.phase.value == "training"
    for at, host in enumerate(("node-a", "node-b")):
        world.says(host, RankExited(at, 0))
        world.says(host, Bye())
        world.gone(host)
    world.at(1)
    assert world.run.phase.value == "done"


def test_a_torch_world_tolerates_no_loss() -> None:
    world = formed("cpu:1", "cpu:1", mode="torch")
    for at, host in enumerate(("node-a", "node-b")):
        world.says(host, StepMessage(f"rank {at} started", at))
    world.says("node-b", RankExited(1, None, 9))
    assert failed(world).startswith("rank 1 on node-b killed by signal 9")


def test_a_rank_that_the_coordinator_had_ended_is_named_for_that() -> None:
    world = trained()
    world.hub(Expelled(0, 30.2))
    world.says("node-a", RankExited(0, None, 9))
    assert world.told(RankGone) == [RankGone(0, False, "stood still for 30 s and was ended (stall_timeout)")]
    world.says("node-b", RankExited(1, None, 9))
    assert world.told(RankGone)[-1].why == "killed by signal 9 (out of memory?)"

"""The pure machine: events in, orders out."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from flodl_agent import events as ev
from flodl_agent.agent import PHASES, TABLE, Agent, Timing, dial_fault
from flodl_wire.devices import CpuDevices
from flodl_wire.faults import Fault, Refused
from flodl_wire.join_messages import (
    Abort,
    Accept,
    AskSchema,
    Beat,
    Bye,
    DeviceOffer,
    Echoed,
    Hello,
    HostFault,
    JoinDown,
    RankExited,
    Reject,
    RelayExited,
    Schema,
    Step,
    WorldFormed,
)
from flodl_wire.plane_messages import TensorSpec
from flodl_wire.specs import Command, Envelope, EnvelopeController, EnvelopeWorker, RelaySpec

TIMING = Timing(
    connect_budget=30, retry=0.5, verdict_wait=30, formation_margin=30, beat=1, silence=15, grace=5, relay_linger=2
)
HELLO = Hello("node-a", "1", [DeviceOffer("cpu", 0), DeviceOffer("cpu", 1)])
WORLD = WorldFormed(
    Envelope(
        EnvelopeController("c", 1), 2, 1, EnvelopeWorker("node-a", [0, 1], CpuDevices(2)), "cpu_sync", "run"
    ),
    RelaySpec("node-a", "c", 1, [0, 1], 2, "00", "run"),
    Command(["train"]),
)  # fmt: skip


class Story:
    """A machine and its clock; `tell` gives its orders to one event."""

    def __init__(self, *told: Any) -> None:
        self.now = 100.0
        self.agent = Agent(HELLO, "ctrl:1337", TIMING, self.now)
        for event in told:
            self.tell(event)

    def tell(self, event: Any, after: float = 0.0) -> list[ev.Effect]:
        self.now += after
        return self.agent.handle(event, self.now)

    def sent(self, event: Any, after: float = 0.0) -> list[Any]:
        return [effect.message for effect in self.tell(event, after) if isinstance(effect, ev.Send)]


ACCEPTED = (ev.LinkOpened(), Accept([0, 1], 60, "i"))
FORMED = (*ACCEPTED, WORLD)
RUNNING = (*FORMED, ev.Started("relay", None), ev.Started("rank 0", 0), ev.Started("rank 1", 1))


def test_the_table_has_a_cell_for_every_event_in_every_phase_and_a_method_for_every_cell() -> None:
    assert set(TABLE) == {*get_args(ev.Event)}
    assert set(get_args(JoinDown)) <= set(TABLE)
    for event, cells in TABLE.items():
        assert tuple(cells) == PHASES, event
        for cell in cells.values():
            assert hasattr(Agent, f"_{cell}"), cell


def test_no_event_in_any_phase_makes_it_stumble() -> None:
    samples = [
        ev.DialFailed("refused"), ev.LinkLost("why"), ev.Signalled("SIGTERM"), ev.Started("rank 0", 0),
        ev.Noted("n"), ev.CannotStart(Fault("c", "w")), ev.Exited("rank 0", 0, 0), ev.KeeperEnded(True),
        ev.KeeperSilent(10.2), Accept([0], 1, "i"),
        Reject("c", "w", "y", "f"), WORLD, Abort("r"), Echoed(1),
    ]  # fmt: skip
    made = {type(sample): sample for sample in samples}
    ways = {
        "dialling": (), "hello": ACCEPTED[:1], "waiting": ACCEPTED, "formed": FORMED, "running": RUNNING,
        "ending": (*RUNNING, Abort("r")), "over": (ev.StdinClosed(),),
    }  # fmt: skip
    assert tuple(ways) == PHASES
    for phase, told in ways.items():
        for kind in TABLE:
            story = Story(*told)
            assert story.agent.phase == phase
            story.tell(made.get(kind) or kind(), after=1)


def test_it_dials_at_once_and_then_every_half_second_until_the_budget_is_spent() -> None:
    story = Story()
    assert story.tell(ev.Ticked()) == [ev.Dial(30)]
    assert story.tell(ev.Ticked()) == []
    assert story.tell(ev.DialFailed("refused")) == []
    assert story.tell(ev.Ticked(), after=0.4) == []
    assert story.tell(ev.Ticked(), after=0.1) == [ev.Dial(29.5)]
    finish = story.tell(ev.DialFailed("refused"), after=29.5)
    assert isinstance(finish[0], ev.Finish) and finish[0].code == 1
    assert "nothing listens on that port (refused 2 times in 30 s)" in finish[0].text


def test_refused_timed_out_no_route_and_unknown_name_are_four_sentences() -> None:
    said = {dial_fault(ev.DialFailed(kind), "c:1", 3, 30).why for kind in ("refused", "timeout", "route", "name")}
    assert len(said) == 4


def test_a_wrong_token_is_not_tried_twice() -> None:
    story = Story()
    story.tell(ev.Ticked())
    wrong = Refused("wrong-key", "cannot open the join channel", "the other side holds another salt or token", "check")
    assert story.tell(ev.DialFailed("other", "", wrong)) == [ev.Finish(1, wrong.render())]


def test_the_hello_says_from_where_it_came() -> None:
    story = Story()
    (hello,) = story.sent(ev.LinkOpened("10.1.2.3"))
    assert (hello.host, hello.own_address) == ("node-a", "10.1.2.3")


def test_what_the_model_is_made_of_is_told_whenever_it_is_asked_before_the_world_forms() -> None:
    tensors = [TensorSpec("w", [2, 3], "F32", "param")]
    for told in (ACCEPTED[:1], ACCEPTED):
        story = Story()
        story.agent = Agent(HELLO, "ctrl:1337", TIMING, story.now, schema=tensors)
        for event in told:
            story.tell(event)
        assert story.sent(AskSchema()) == [Schema(tensors)]
    assert Story(*FORMED).sent(AskSchema()) == []


def test_a_run_that_this_host_has_finished_is_not_joined_again() -> None:
    story = Story()
    story.agent = Agent(HELLO, "ctrl:1337", TIMING, story.now, finished="i")
    story.tell(ev.LinkOpened())
    *_, bye, finish = story.tell(Accept([0], 60, "i"))
    assert isinstance(bye, ev.Send) and isinstance(bye.message, Bye)
    assert isinstance(finish, ev.Finish) and finish.fault and finish.fault.code == "run-finished"
    other = Story()
    other.agent = Agent(HELLO, "ctrl:1337", TIMING, other.now, finished="i")
    other.tell(ev.LinkOpened())
    assert other.tell(Accept([0], 60, "another")) == [] and other.agent.phase == "waiting"


def test_the_hello_is_the_first_word_and_a_reject_the_last() -> None:
    story = Story()
    assert story.tell(ev.LinkOpened()) == [ev.Send(HELLO)]
    assert story.tell(Reject("mixed", "cannot admit node-a", "it runs rocm70", "mend it")) == [
        ev.Finish(1, "cannot admit node-a: it runs rocm70\nfix: mend it")
    ]


def test_a_member_that_is_sent_away_ends_with_the_reason_and_the_fix() -> None:
    story = Story(*ACCEPTED)
    assert story.tell(Reject("run-superseded", "cannot keep node-a", "it holds run one", "dial again")) == [
        ev.Finish(1, "cannot keep node-a: it holds run one\nfix: dial again")
    ]


def test_no_verdict_in_time_is_the_end() -> None:
    story = Story(ev.LinkOpened())
    assert story.tell(ev.Ticked(), after=29) == []
    finish = story.tell(ev.Ticked(), after=1)[-1]
    assert isinstance(finish, ev.Finish) and "too long waiting for the verdict of ctrl:1337" in finish.text


def test_it_waits_for_the_world_as_long_as_the_accept_says_and_a_margin() -> None:
    story = Story(*ACCEPTED)
    for _ in range(8):
        story.tell(Beat(), after=11)
        assert story.agent.phase == "waiting"
    story.tell(Beat(), after=1.9)
    story.tell(ev.Ticked())
    assert story.agent.phase == "waiting"
    assert isinstance(story.tell(ev.Ticked(), after=0.2)[-1], ev.Finish)


def test_both_ends_beat_every_second_and_silence_is_loss() -> None:
    story = Story(*RUNNING)
    assert story.tell(ev.Ticked(), after=1) == [ev.Send(Beat()), ev.BeatKeeper()]
    assert story.tell(ev.Ticked(), after=0.5) == []
    story.tell(Beat(), after=2)
    for _ in range(3):
        assert story.tell(ev.Ticked(), after=5) == [ev.Send(Beat()), ev.BeatKeeper()]
    assert story.tell(ev.Ticked(), after=0.1) == [ev.StopKeeper(5)]
    assert story.agent.why == "lost the link to ctrl:1337: no beat for 15 s"


def test_after_a_box_slept_the_controller_has_its_time_again() -> None:
    story = Story(*RUNNING)
    assert story.tell(ev.Ticked(), after=3600) == [ev.Send(Beat()), ev.BeatKeeper()]
    for _ in range(3):
        story.tell(ev.Ticked(), after=5)
    assert story.agent.phase == "running"
    assert story.tell(ev.Ticked(), after=0.1) == [ev.StopKeeper(5)]


def test_the_keeper_gets_its_beats_while_the_end_lasts() -> None:
    story = Story(*RUNNING, Abort("r", grace_s=60))
    assert ev.BeatKeeper() in story.tell(ev.Ticked(), after=1)


def test_starts_are_told_and_running_begins_with_the_last() -> None:
    story = Story(*FORMED)
    assert story.sent(ev.Started("relay", None)) == [Step("relay started")]
    assert story.sent(ev.Started("rank 0", 0)) == [Step("rank 0 started", 0)]
    assert story.agent.phase == "formed"
    story.tell(ev.Started("rank 1", 1))
    assert story.agent.phase == "running"


def test_ranks_that_end_by_themselves_lead_to_a_goodbye_and_exit_0_whatever_their_codes() -> None:
    story = Story(*RUNNING)
    assert story.sent(ev.Exited("rank 0", 0, 0, tail=["x"])) == [RankExited(0, 0, tail=["x"])]
    assert story.sent(ev.Exited("rank 1", 1, 3)) == [RankExited(1, 3)]
    assert story.sent(ev.Exited("relay", None, 1)) == [RelayExited(1)]
    assert story.tell(ev.KeeperEnded(True)) == [ev.Send(Bye("every process has ended")), ev.Finish(0)]


def test_a_relay_that_lingers_after_the_last_rank_is_ended() -> None:
    story = Story(*RUNNING, ev.Exited("rank 0", 0, 0), ev.Exited("rank 1", 1, 0))
    assert ev.StopKeeper(5) not in story.tell(ev.Ticked(), after=1.9)
    assert ev.StopKeeper(5) in story.tell(ev.Ticked(), after=0.1)
    assert story.agent.phase == "running"


def test_a_dead_relay_is_told_at_once_and_ends_the_host_when_its_ranks_do_not_follow() -> None:
    story = Story(*RUNNING)
    assert story.sent(ev.Exited("relay", None, signal=9)) == [RelayExited(None, 9)]
    assert story.agent.phase == "running"
    effects = story.tell(ev.Ticked(), after=2)
    assert effects[-1] == ev.StopKeeper(5) and story.agent.phase == "ending"
    assert isinstance(effects[0], ev.Send) and isinstance(effects[0].message, HostFault)


def test_what_ends_by_our_order_is_no_news() -> None:
    story = Story(*RUNNING)
    assert story.tell(Abort("node-b is lost", grace_s=1)) == [ev.StopKeeper(1)]
    assert story.sent(ev.Exited("rank 0", 0, signal=15)) == [RankExited(0, None, 15, ordered=True)]
    assert story.tell(ev.KeeperEnded(True))[-1] == ev.Finish(1, "aborted by the controller: node-b is lost")


def test_the_first_cause_stays_the_cause() -> None:
    story = Story(*RUNNING, Abort("first"))
    for later in (ev.StdinClosed(), ev.LinkLost("gone"), Abort("second")):
        assert story.tell(later) == []
    assert story.tell(ev.KeeperEnded(True))[-1] == ev.Finish(1, "aborted by the controller: first")


def test_a_second_signal_does_not_wait_for_the_grace() -> None:
    story = Story(*RUNNING)
    told = story.tell(ev.Signalled("SIGINT"))
    assert told[-1] == ev.StopKeeper(5)
    assert story.tell(ev.Signalled("SIGINT")) == [ev.StopKeeper(0.0)]


def test_a_process_that_cannot_start_is_a_fault_of_the_host() -> None:
    story = Story(*FORMED)
    fault = Refused("no-command", "cannot start rank 0 on node-a", "no such command")
    effects = story.tell(ev.CannotStart(fault))
    assert effects == [ev.Send(HostFault("no-command", fault.what, fault.why)), ev.StopKeeper(5)]


def test_without_a_keeper_there_is_nothing_to_wait_for() -> None:
    story = Story(*ACCEPTED, WORLD)
    effects = story.tell(ev.CannotStart(Fault("c", "cannot"), keeper=False))
    assert [type(effect) for effect in effects] == [ev.Send, ev.Send, ev.Finish]


def test_a_keeper_that_dies_is_a_fault_of_the_host_unless_it_was_told_to_end() -> None:
    story = Story(*RUNNING)
    assert [type(message) for message in story.sent(ev.KeeperEnded(False))] == [HostFault, Bye]
    story = Story(*RUNNING, Abort("r"))
    assert [type(message) for message in story.sent(ev.KeeperEnded(False))] == [Bye]


def test_a_keeper_that_stands_still_is_the_cause_and_is_woken_to_end_what_it_keeps_or_killed() -> None:
    for told in (FORMED, RUNNING):
        story = Story(*told)
        effects = story.tell(ev.KeeperSilent(10.2))
        assert effects[-1] == ev.StopKeeper(5) and story.agent.phase == "ending"
        assert effects[0] == ev.Send(
            HostFault(
                "keeper-silent",
                "the keeper of node-a stands still",
                "stopped or stuck: no answer for 10 s; it and the processes there were ended",
            )
        )
        assert story.tell(ev.KeeperSilent(10.4)) == [ev.KillKeeper()]
        assert [type(message) for message in story.sent(ev.KeeperEnded(False))] == [Bye]


def test_the_keeper_hears_of_us_until_the_last_words_are_out() -> None:
    story = Story(*RUNNING, ev.Exited("rank 0", 0, 0), ev.Exited("rank 1", 1, 0), ev.KeeperEnded(True))
    assert story.agent.phase == "over"
    assert story.tell(ev.Ticked(), after=1) == [ev.BeatKeeper()]
    assert story.tell(ev.Ticked(), after=0.5) == []


def test_a_breach_of_the_protocol_ends_the_host_with_the_word_that_was_wrong() -> None:
    story = Story(*RUNNING)
    first = story.sent(WORLD)[0]
    assert isinstance(first, HostFault) and first.why == "it sent WorldFormed to an agent that is running"


@pytest.mark.parametrize("told", [(), ACCEPTED[:1], ACCEPTED])
def test_before_anything_runs_leaving_takes_one_step(told: tuple[Any, ...]) -> None:
    story = Story(*told)
    finish = story.tell(ev.StdinClosed())[-1]
    assert isinstance(finish, ev.Finish) and finish.code == 1 and story.agent.phase == "over"


def test_the_keeper_is_told_once_that_training_is_whole_and_how_a_rank_that_stood_still_ended_is_passed_on() -> None:
    story = Story(*RUNNING)
    assert story.tell(Beat()) == []
    assert story.tell(Beat(trained=True)) == [ev.TellTrained()]
    assert story.tell(Beat(trained=True)) == []
    exited = ev.Exited("rank 1", 1, signal=9, stood_still_s=15.2)
    assert story.sent(exited) == [RankExited(1, None, 9, stood_still_s=15.2)]


def test_a_relay_that_was_ended_behind_the_training_takes_no_rank_with_it() -> None:
    story = Story(*RUNNING, Beat(trained=True))
    stood_still = ev.Exited("relay", None, signal=9, stood_still_s=15.2)
    assert story.sent(stood_still) == [RelayExited(None, 9, stood_still_s=15.2)]
    effects = story.tell(ev.Ticked(), after=TIMING.relay_linger + 0.1)
    assert not any(isinstance(effect, ev.StopKeeper) for effect in effects) and story.agent.phase == "running"

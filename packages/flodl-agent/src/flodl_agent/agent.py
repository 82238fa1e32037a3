"""The agent as a pure machine: one host's way through a run.

    dialling ──▶ hello ──▶ waiting ──▶ formed ──▶ running ──▶ over
                   ╰──────────┴──────────┴──────────┴──▶ ending ──▶ over

dialling   nobody there yet; tries again until the connect budget is spent hello      the link stands, we have said who
we are; the controller must accept or reject us waiting    in; waits for the world to form. From here on both sides
beat, and silence is loss formed     the world is frozen, our processes are being started running    all of them are
ending     they were told to end; waits until nothing of the world lives here. Every cause of that comes first to the
controller
           (HostFault), then the exits it leads to (`ordered`: no news), then Bye
over       nothing left to do; what still arrives was under way when we hung up

An agent that ends its processes does so for a first cause, and later ones do not change it. It exits 0 when its
processes ended by themselves, whatever their codes (the controller judges those), else 1 with one line.

`TABLE` has a cell for every event in every phase. `breach` means the controller broke the protocol; `late` that the
event was on its way when the phase changed and has nothing to add. Time is an argument, in seconds of a steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from flodl_agent import events as ev
from flodl_agent.events import Effect, Event
from flodl_wire.faults import Broken, Fault, Refused
from flodl_wire.join_messages import (
    Abort,
    Accept,
    AskSchema,
    Beat,
    Bye,
    Echoed,
    Hello,
    HostFault,
    RankExited,
    Reject,
    RelayExited,
    Schema,
    Step,
    WorldFormed,
)
from flodl_wire.plane_messages import TensorSpec

PHASES = ("dialling", "hello", "waiting", "formed", "running", "ending", "over")

TABLE: dict[type, dict[str, str]] = {
    event: dict(zip(PHASES, cells.split(), strict=True))
    for event, cells in {
        #                 dialling     hello       waiting     formed      running     ending   over
        ev.LinkOpened:   "greet        late        late        late        late        late     late",
        ev.DialFailed:   "try_again    late        late        late        late        late     late",
        ev.LinkLost:     "late         lose        lose        lose        lose        late     late",
        ev.StdinClosed:  "leave        leave       leave       leave       leave       late     late",
        ev.Signalled:    "leave        leave       leave       leave       leave       hurry    late",
        ev.Started:      "late         late        late        note_start  note_start  late     late",
        ev.Noted:        "late         late        late        pass_on     pass_on     late     late",
        ev.CannotStart:  "late         late        late        give_up     give_up     late     late",
        ev.Exited:       "late         late        late        note_exit   note_exit   note_exit late",
        ev.KeeperSilent: "late         late        late        unkept      unkept      kill_keeper late",
        ev.KeeperEnded:  "late         late        late        close       close       close    late",
        ev.Ticked:       "redial       await_them  await_them  watch       watch       beat     linger",
        Accept:          "breach       enter       breach      breach      breach      late     late",
        Reject:          "breach       refuse      refuse      breach      breach      late     late",
        WorldFormed:     "breach       breach      launch      breach      breach      late     late",
        Abort:           "breach       obey        obey        obey        obey        late     late",
        Beat:            "breach       hear        hear        hear_done   hear_done   hear     late",
        AskSchema:       "breach       describe    describe    late        late        late     late",
        Echoed:          "breach       breach      breach      breach      breach      late     late",
    }.items()
}  # fmt: skip


@dataclass(frozen=True)
class Timing:
    """Seconds, scaled already."""

    connect_budget: float
    retry: float
    verdict_wait: float
    formation_margin: float
    beat: float
    silence: float
    grace: float
    relay_linger: float  # what a relay gets after its last rank, and ranks after their relay, before they are ended


class Agent:
    """`finished`: instance of the window whose run this host has run to its end; it is not joined a second time.
    `schema`: what the model signature of `hello` was made of.
    """

    def __init__(
        self,
        hello: Hello,
        controller: str,
        timing: Timing,
        now: float,
        *,
        finished: str = "",
        schema: list[TensorSpec] | None = None,
    ) -> None:
        self.phase = "dialling"
        self.why = f"dialling {controller}"
        self._hello = hello
        self._controller = controller  # host:port as typed, for messages
        self._timing = timing
        self._tries = 0
        self._next_dial: float | None = now
        self._give_up_at = now + timing.connect_budget  # of the current wait: connect, verdict, formation
        self._heard = self._beaten = self._ticked = now
        self._starting: set[str] = set()
        self._ranks: set[str] = set()  # names of living ranks
        self._relay = False  # lives
        self._relay_call: float | None = None  # when the relay (or those it left) is told to end
        self._relay_fault: Fault | None = None
        self._code, self._line = 0, ""
        self._fault: Fault | None = None
        self._trained = False  # our processes only have to leave
        self._finished = finished
        self._schema = schema or []

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What to do about `event`. Raises nothing: a breach of the protocol is a reason to end like others."""
        if isinstance(event, (Accept, Reject, WorldFormed, Abort, Beat, AskSchema)):
            self._heard = now
        if isinstance(event, ev.Ticked):
            if now - self._ticked > self._timing.silence / 2:  # we stood still ourselves, and maybe all the box
                self._heard = now
            self._ticked = now
        step = getattr(self, f"_{TABLE[type(event)][self.phase]}")
        effects: list[Effect] = step(event, now)
        return effects

    # ---- getting in

    def _greet(self, event: ev.LinkOpened, now: float) -> list[Effect]:
        self._enter_phase("hello", f"waiting for the verdict of {self._controller}")
        self._give_up_at, self._heard = now + self._timing.verdict_wait, now
        return [ev.Send(msgspec.structs.replace(self._hello, own_address=event.own_address))]

    def _try_again(self, event: ev.DialFailed, now: float) -> list[Effect]:
        if event.fault is None and now + self._timing.retry < self._give_up_at:
            self._next_dial = now + self._timing.retry
            return []
        fault = event.fault or dial_fault(event, self._controller, self._tries, self._timing.connect_budget)
        return self._over(1, fault.render(), fault)

    def _enter(self, event: Accept, now: float) -> list[Effect]:
        if self._finished and event.instance == self._finished:
            what = f"did not join {self._controller} again"
            return self._end(Refused("run-finished", what, "this host has run that run to its end"), tell=False)
        self._enter_phase("waiting", "in; waiting for the world to form")
        self._give_up_at = now + event.formation_wait_s + self._timing.formation_margin
        return []

    def _refuse(self, event: Reject, now: float) -> list[Effect]:
        fault = Refused(event.code, event.what, event.why, event.fix)
        return self._over(1, fault.render(), fault)

    def _describe(self, event: AskSchema, now: float) -> list[Effect]:
        return [ev.Send(Schema(self._schema))]

    def _launch(self, event: WorldFormed, now: float) -> list[Effect]:
        self._enter_phase("formed", "starting the processes of this host")
        self._ranks = {f"rank {rank}" for rank in event.envelope.worker.ranks}
        self._relay = event.relay is not None
        self._starting = self._ranks | ({"relay"} if self._relay else set())
        return [ev.Launch(event)]

    # ---- taking part

    def _note_start(self, event: ev.Started, now: float) -> list[Effect]:
        self._starting.discard(event.name)
        if not self._starting:
            self._enter_phase("running", "every process of this host has been started")
        return [ev.Send(Step(f"{event.name} started", event.rank))]

    def _pass_on(self, event: ev.Noted, now: float) -> list[Effect]:
        return [ev.Send(Step(event.text))]

    def _note_exit(self, event: ev.Exited, now: float) -> list[Effect]:
        if event.rank is None:
            self._relay = False
            if self._ranks and event.code != 0 and not event.stood_still_s:  # else they need no more averages
                how = f"exit {event.code}" if event.signal is None else f"killed by signal {event.signal}"
                what = f"the relay of {self._hello.host} ended"
                self._relay_fault = Broken("relay-died", what, f"{how}; its ranks can average no more")
                self._relay_call = now + self._timing.relay_linger
            return [ev.Send(RelayExited(event.code, event.signal, event.tail, event.stood_still_s))]
        self._ranks.discard(event.name)
        if not self._ranks and self._relay:
            self._relay_call = now + self._timing.relay_linger
        ordered = self.phase == "ending"
        oom, stood_still_s = event.out_of_memory, event.stood_still_s
        return [ev.Send(RankExited(event.rank, event.code, event.signal, event.tail, ordered, oom, stood_still_s))]

    def _hear(self, event: Beat, now: float) -> list[Effect]:
        return []

    def _hear_done(self, event: Beat, now: float) -> list[Effect]:
        if not event.trained or self._trained:
            return []
        self._trained = True
        return [ev.TellTrained()]

    def _redial(self, event: ev.Ticked, now: float) -> list[Effect]:
        if self._next_dial is None or now < self._next_dial:
            return []
        self._next_dial, self._tries = None, self._tries + 1
        return [ev.Dial(self._give_up_at - now)]

    def _await_them(self, event: ev.Ticked, now: float) -> list[Effect]:
        if now >= self._give_up_at:
            return self._end(Fault("no-verdict", f"cannot go on with {self._controller}", f"too long {self.why}"))
        return [] if self.phase == "hello" else self._watch(event, now)

    def _watch(self, event: ev.Ticked, now: float) -> list[Effect]:
        if now - self._heard > self._timing.silence:
            return self._lose(ev.LinkLost(f"no beat for {self._timing.silence:g} s"), now)
        if self._relay_call is not None and now >= self._relay_call:
            self._relay_call = None
            if self._ranks and self._relay_fault:
                return self._end(self._relay_fault)
            return [ev.StopKeeper(self._timing.grace)] if self._relay else []
        return self._beat(event, now)

    def _beat(self, event: ev.Ticked, now: float) -> list[Effect]:
        if now - self._beaten < self._timing.beat:
            return []
        self._beaten = now
        return [ev.Send(Beat())] if self.phase == "waiting" else [ev.Send(Beat()), ev.BeatKeeper()]

    def _linger(self, event: ev.Ticked, now: float) -> list[Effect]:
        """While the last words go out the keeper still watches us."""
        if now - self._beaten < self._timing.beat:
            return []
        self._beaten = now
        return [ev.BeatKeeper()]

    def _hurry(self, event: ev.Signalled, now: float) -> list[Effect]:
        return [ev.StopKeeper(0.0)]

    # ---- ending

    def _lose(self, event: ev.LinkLost, now: float) -> list[Effect]:
        return self._end(Fault("link-lost", f"lost the link to {self._controller}", event.why), tell=False)

    def _leave(self, event: ev.StdinClosed | ev.Signalled, now: float) -> list[Effect]:
        what = f"the agent of {self._hello.host} was told to end"
        if isinstance(event, ev.Signalled):
            return self._end(Fault("signalled", what, f"it got {event.name}"))
        return self._end(Fault("stdin-closed", what, "its stdin was closed by who started it"))

    def _obey(self, event: Abort, now: float) -> list[Effect]:
        return self._end(Fault("aborted", "aborted by the controller", event.reason), tell=False, grace=event.grace_s)

    def _give_up(self, event: ev.CannotStart, now: float) -> list[Effect]:
        effects = self._end(event.fault, stop=event.keeper)
        return effects if event.keeper else [*effects, *self._close(ev.KeeperEnded(clean=True), now)]

    def _breach(self, event: Any, now: float) -> list[Effect]:
        why = f"it sent {type(event).__name__} to an agent that is {self.phase}"
        return self._end(Broken("protocol", f"cannot follow {self._controller}", why))

    def _end(self, fault: Fault, *, tell: bool = True, stop: bool = True, grace: float | None = None) -> list[Effect]:
        """End for `fault`, the first cause. `tell` it to the controller when it does not know."""
        linked, launched = self.phase != "dialling", self.phase in ("formed", "running")
        effects: list[Effect] = []
        self._code, self._line, self._fault = 1, fault.render(), fault
        if tell and linked:
            self._line = str(fault)  # the fix goes with the fault, and is printed where that is read
            effects.append(ev.Send(HostFault(fault.code, fault.what, fault.why, fault.fix)))
        if not launched:
            return effects + self._goodbye()
        self._enter_phase("ending", str(fault))
        return [*effects, ev.StopKeeper(self._timing.grace if grace is None else grace)] if stop else effects

    def _unkept(self, event: ev.KeeperSilent, now: float) -> list[Effect]:
        why = f"stopped or stuck: no answer for {event.seconds:.0f} s; it and the processes there were ended"
        return self._end(Broken("keeper-silent", f"the keeper of {self._hello.host} stands still", why))

    def _kill_keeper(self, event: ev.KeeperSilent, now: float) -> list[Effect]:
        return [ev.KillKeeper()]

    def _close(self, event: ev.KeeperEnded, now: float) -> list[Effect]:
        """Nothing lives here any more."""
        effects: list[Effect] = []
        if not event.clean:
            what = f"the keeper of {self._hello.host} was killed"
            fault = Broken("keeper-died", what, "it is the parent of the processes there; they were ended")
            effects = self._end(fault, stop=False) if self.phase != "ending" else []
        elif event.left:
            self._code = 1
            self._line = (
                f"{event.left} processes on {self._hello.host} cannot be ended: another user's, or stuck in the kernel"
            )
            effects = [ev.Send(Step(self._line))]
        return effects + self._goodbye()

    def _goodbye(self) -> list[Effect]:
        over = self._over(self._code, self._line, self._fault)
        return [ev.Send(Bye(self.why.partition("\n")[0])), *over]

    def _over(self, code: int, line: str, fault: Fault | None = None) -> list[Effect]:
        self._enter_phase("over", line or "every process has ended")
        return [ev.Finish(code, line, fault)]

    def _late(self, event: Any, now: float) -> list[Effect]:
        return []

    def _enter_phase(self, phase: str, why: str) -> None:
        self.phase, self.why = phase, why


def dial_fault(event: ev.DialFailed, controller: str, tries: int, budget: float) -> Fault:
    """Why nobody answered: what was seen decides what to look at."""
    why, fix = {
        "refused": (
            f"nothing listens on that port (refused {tries} times in {budget:g} s)",
            "start the run there first, or check the port",
        ),
        "timeout": (
            f"no answer in {budget:g} s, packets are dropped on the way",
            "open that TCP port in the controller's firewall",
        ),
        "route": (
            "no route leads to that address from here",
            "check the address, and `ip route get` on this host",
        ),
        "name": (
            f"its name has no address here ({event.text})",
            "use the numeric address, or mend the name service",
        ),
    }.get(event.kind, (event.text, ""))
    return Fault(event.kind, f"cannot reach the controller at {controller}", why, fix)

"""The run as one pure machine: window, formation, supervision, verdict. `handle(event, now)` returns what is to be
done.

It imports no socket, clock, process or random source. `now` is any monotonic clock in seconds; a `Ticked` must come
several times a second, because every deadline is looked at there. The verdict is spoken once; after it the machine
only ends what still runs and then orders `Conclude`.
"""

from __future__ import annotations

from flodl_window import departure, modes
from flodl_window import events as ev
from flodl_window.fanout_watch import FanoutWatch, agent_end, last_words, reason_and_fix
from flodl_window.formation import Charter, form_world, lone_world
from flodl_window.lateness import overdue
from flodl_window.ledger import Ledger
from flodl_window.limits import Limits
from flodl_window.links import Links
from flodl_window.phases import FIRST, Phase, Step, after
from flodl_window.reception import Outcome, Reception, turn_away
from flodl_window.supervision import Supervision
from flodl_window.verdict import Incident, Inquest, Surety
from flodl_window.winding import WindingDown
from flodl_window.window import Window
from flodl_window.words import count, ranks_text
from flodl_wire import exits, hub_messages, join_messages
from flodl_wire.hub_messages import Finished, Form, HubFailed, Progress, Stop, Trained
from flodl_wire.join_messages import Abort, Beat, Bye, HostFault, RankExited, RelayExited
from flodl_wire.result import RunResult
from flodl_wire.specs import FanoutEvent


class Run:
    """One run. `charter`: what it is (mode, command, roster, knobs); `opened`: now, when the window opens."""

    def __init__(self, charter: Charter, limits: Limits, opened: float) -> None:
        self.charter = charter
        self.limits = limits
        self.opened = opened
        self.phase = FIRST
        self.window = Window(charter, opened)
        self.why = ""
        self.inquest = Inquest(limits.grace)
        self.world: Supervision | None = None
        self.formed_at = 0.0
        self.hub_ready = False
        self.progress: Progress | None = None
        self.result: RunResult | None = None
        self.cause: Incident | None = None
        self.verdict_at: float | None = None
        self.exit_code = exits.DONE
        self.links = Links(opened)
        self.reception = Reception(self.window, self.links, limits.schema, limits.quiet)
        self._out: list[ev.Effect] = []
        self.winding = WindingDown(limits, fanout_alive=charter.fanout)
        self.fanout = FanoutWatch()
        self._all_gone_at: float | None = None
        self._judge(opened)
        self._out.clear()

    # the one way in

    def handle(self, event: ev.Event, now: float) -> list[ev.Effect]:
        """Take `event` in and return what is to be done about it, in order."""
        match event:
            case ev.Ticked():
                self._tick(now)
            case ev.HelloReceived():
                self._received(self.reception.hello(event, self.phase, now), now)
            case ev.LinkMessage():
                self._link_message(event, now)
            case ev.LinkClosed():
                self._link_closed(event, now)
            case ev.FanoutReported():
                self._fanout_event(event.event, now)
            case ev.FanoutEnded():
                self._fanout_ended(event, now)
            case ev.HubReported():
                self._hub_message(event.message, now)
            case ev.HubEnded():
                self._hub_ended(event, now)
            case ev.RunsServed():
                self._runs_served(event, now)
            case ev.StartAsked():
                self._start_asked(event, now)
            case ev.StrangerRefused():
                self.window.note_stranger(event.address, event.fault, now)
                self._publish()
            case ev.Interrupted():
                self._interrupted(event, now)
        self._settle(now)
        out, self._out = self._out, []
        return out

    # the window

    def _received(self, outcome: Outcome, now: float) -> None:
        """Carry out what the reception decided, and take those in who are in."""
        if outcome.replaced is not None:
            self._out.append(ev.Shut(outcome.replaced, lost=True))
            self._say(f"{self.links.forget(outcome.replaced) or 'a host'} is back: its old link had fallen silent")
        self._out += outcome.effects
        for entry in outcome.entries:
            self.links.take_in(entry.link, entry.host, now)
            self._say(f"{entry.host} is in: {ranks_text(self.ledger.ranks_of(entry.host))} ({entry.hardware})")
        if outcome.entries:
            self._judge(now)
        if self.phase.window_open and (crowd := self.window.refusals.siege(now)):
            self._fail(Step.BESIEGED, crowd, now)
        if outcome.effects:
            self._publish()

    def _judge(self, now: float) -> None:
        """Let the window decide (reference §2.6)."""
        if not self.phase.window_open or self.inquest.open:
            return
        judged = self.window.judge(self.phase, now)
        if judged.step is Step.FORMED and (lone := lone_world(self.charter, self.ledger, judged.why, now)):
            self._fail(Step.LOST, lone, now)
        elif judged.step is Step.FORMED and not self.hub_ready:
            self.why = f"{judged.why}; waiting for the coordinator to start"
            if now - self.opened >= self.limits.formation:
                self._lose_early(f"coordinator not ready within {self.limits.formation:g} s", "", now)
        elif judged.step is Step.FORMED:
            self._form(judged.why, now)
        elif judged.step is Step.CAP_REACHED:
            failure = Incident(now, Surety.CAUSE, "the world did not form", why=judged.why, fix=judged.fix)
            self._fail(Step.CAP_REACHED, failure, now)
        elif judged.step is not None:
            self._move(judged.step, judged.why)
            self._say(judged.why)
        else:
            self.why = judged.why

    def _form(self, why: str, now: float) -> None:
        places, letters = form_world(self.charter, self.ledger)
        self.formed_at = now
        links = {entry.host: entry.link for entry in self.ledger.members.values()}
        self.world = Supervision.of(self.charter.mode, self.inquest, places, links)
        self._move(Step.FORMED, why)
        world = f"{count(len(places), 'rank')} on {count(len(letters), 'host')}"
        self._say(f"world formed: {world}, mode {self.charter.mode}")
        self._out.append(ev.TellHub(Form(places)))
        self._out += [ev.Send(links[host], letter) for host, letter in letters.items()]
        self.why = f"{why}; " + (
            "starting the ranks" if self.charter.mode == modes.TORCH else "waiting for relays and ranks"
        )

    def _start_asked(self, event: ev.StartAsked, now: float) -> None:
        status, body = self.window.fire(self.phase, event.trusted)
        if status == 200:
            self._judge(now)
            self._publish()
        self._out.append(ev.AnswerStart(status, body))

    def _strike(self, gone: dict[str, str], now: float) -> None:
        """Members (host → why) are out again before the world formed."""
        self._out += map(ev.Say, self.window.strike(gone))
        self._judge(now)

    def _runs_served(self, event: ev.RunsServed, now: float) -> None:
        """Who holds a run that has been published over fetches anew; all are out before the window is judged."""
        if not self.phase.window_open:
            return
        stale = self.window.serve(event.runs, self.phase, now)
        for entry, refused in stale:
            self.links.forget(entry.link)
            self._out += turn_away(entry.link, refused)
        self._strike({entry.host: refused.why for entry, refused in stale}, now)
        self._publish()

    # links

    def _link_message(self, event: ev.LinkMessage, now: float) -> None:
        message, world = event.message, self.world
        if (outcome := self.reception.message(event.link, message, self.phase, now)) is not None:
            self._received(outcome, now)
        host = self.links.host_of(event.link)
        if not host or outcome is not None:
            return
        self.links.hear(event.link, now)
        if isinstance(message, Bye):
            self._out.append(ev.Shut(event.link))
            if world is not None:
                world.said_bye(host, message.reason, now)
                self._publish()
            return
        if isinstance(message, join_messages.Step):
            self._say(f"{host}: {message.text}" if host not in message.text else message.text)
            if world is not None and message.rank in world.ranks:
                world.ranks[message.rank].started = True
                self._torch_began(now)
            return
        if world is None:
            if isinstance(message, HostFault):
                what = message.what if host in message.what else f"host {host}: {message.what}"
                if self.charter.fanout and self.ledger.named(host) is not None:
                    self._lose_early(what, host, now, message.why, message.fix)
                else:  # who came by itself may leave again: the end of its link strikes it out
                    self._say(f"{what}: {message.why}" if message.why else what)
            return
        if isinstance(message, RankExited):
            world.rank_exited(message, now)
        elif isinstance(message, RelayExited):
            world.relay_exited(host, message, now)
        elif isinstance(message, HostFault):
            world.host_fault(host, message, now)
        else:
            return
        self._publish()

    def _link_closed(self, event: ev.LinkClosed, now: float) -> None:
        host = self.links.forget(event.link)
        self.reception.closed(event.link)
        if not host:
            return
        if self.world is not None:
            self.world.link_closed(host, event.why, now)
        elif self.phase.window_open:
            self._strike({host: "it left before the world formed"}, now)
        self._publish()

    # the fan-out

    def _fanout_event(self, event: FanoutEvent, now: float) -> None:
        # What an agent prints while its link lives, or after we aborted it, it has told us or we have told it.
        heard = event.host in self.links.hosts or (self.phase.terminal and event.host in self.ledger.members)
        if not (event.kind == "line" and heard):
            self._out += self.fanout.note(event)
        if event.kind != "exited":
            return
        if self.world is not None:
            self.world.agent_ended(event.host, agent_end(event), last_words(event), now)
        elif not self.phase.terminal:
            refused = None if event.host in self.ledger.members else self.window.refusals.last_of(event.host)
            self.inquest.add(self.fanout.gone_early(event, refused, now))

    def _fanout_ended(self, event: ev.FanoutEnded, now: float) -> None:
        self.winding.fanout_alive = False
        over = self.world is not None and (self.world.finished or self.world.all_hosts_ended)
        if not self.phase.terminal and not over:
            self.inquest.add(self.fanout.ended(event, now))

    # the coordinator

    def _hub_message(self, message: hub_messages.FromHub, now: float) -> None:
        world = self.world
        if isinstance(message, (hub_messages.Notice, hub_messages.EpochDone)):
            self._say(message.text)
        elif isinstance(message, hub_messages.Ready):
            self.charter.hub_socket, self.hub_ready = message.socket, True
            self._judge(now)
        if world is None:
            if isinstance(message, HubFailed):
                self._lose_early(message.what, "", now, message.why, message.fix)
            return
        if isinstance(message, hub_messages.RelayIn):
            world.relay_in(message.host)
            self._loading()
        elif isinstance(message, hub_messages.RankIn):
            world.rank_in(message.rank, now)
            self._loading()
        elif isinstance(message, hub_messages.Met):
            world.on_their_own = True
            self._loading()
            self._say(self.why)
        elif isinstance(message, hub_messages.TrainingBegan):
            self._began(message.text, now)
        elif isinstance(message, Progress):
            self._progress(message)
        elif isinstance(message, hub_messages.Expelled):
            world.expelled[message.rank] = message.seconds
        elif isinstance(message, (Trained, Finished)):
            self.result = world.hub_says_trained(message)
            self.why = "training is finished; the ranks are leaving"
            self._publish()
        elif isinstance(message, HubFailed):
            self.result = message.result or self.result
            world.hub_says_failed(message, now)

    def _lose_early(
        self, what: str, host: str, now: float, why: str = "", fix: str = "", tail: list[str] | None = None
    ) -> None:
        self.inquest.add(Incident(now, Surety.CAUSE, what, host, None, why, fix, tail or []))

    def _loading(self) -> None:
        assert self.world is not None
        if self.phase is Phase.FORMING:
            self.why = self.world.loading()
            self._publish()

    def _began(self, text: str, now: float) -> None:
        assert self.world is not None
        if self.phase is not Phase.FORMING:
            return
        self.world.began = True
        for life in self.world.ranks.values():
            if not life.ended:
                life.status = "training"
        self._move(Step.BEGAN, text)
        self._say(text)

    def _torch_began(self, now: float) -> None:
        """Mode torch has no coordinator that would say so: it begins when the last rank's process runs."""
        world = self.world
        if self.charter.mode == modes.TORCH and world is not None and world.all_started:
            self._began(f"{count(len(world.ranks), 'rank')} running under torch.distributed", now)

    def _progress(self, progress: Progress) -> None:
        assert self.world is not None
        self.progress = progress
        self.world.note_rates(progress)
        self._out += [ev.ShowProgress(progress), ev.Publish()]

    def _hub_ended(self, event: ev.HubEnded, now: float) -> None:
        self.winding.hub_alive = False
        if self.world is not None:
            self.world.hub_ended(event.how, list(event.tail), now)
        elif not self.phase.terminal:
            said, fix = reason_and_fix(event.tail)
            why = f"flodl-planes hub {event.how}: {said or 'it said nothing'}"
            self._lose_early("coordinator lost before the world formed", "", now, why, fix, list(event.tail))

    # time, the operator, the end

    def _interrupted(self, event: ev.Interrupted, now: float) -> None:
        if not self.phase.terminal:
            trained = self.world is not None and self.world.trained
            behind = " (training was done, its checkpoint is whole)" if trained else ""
            stopped = Incident(now, Surety.CAUSE, f"interrupted by {event.signal}{behind}")
            self._fail(Step.STOPPED, stopped, now, exits.INTERRUPTED)

    def _tick(self, now: float) -> None:
        for link in self.links.silent(self.limits.silence, now):
            self._silent(link, now)
        self._received(self.reception.tick(self.phase, now), now)
        self._judge(now)
        world = self.world
        if world is not None and self.phase is Phase.FORMING:
            late = overdue(world, self.limits, now - self.formed_at, now)
            if late is not None and not self.inquest.open:
                self.inquest.add(late)
        if world is not None and not self.phase.terminal and world.all_hosts_ended:
            self._check_end(world, now)

    def _silent(self, link: int, now: float) -> None:
        host = self.links.forget(link)
        self._out.append(ev.Shut(link, lost=True))
        if self.world is not None:
            self.world.silent(host, self.limits.silence, now)
        elif self.phase.window_open:
            self._strike({host: f"no sign of life for {self.limits.silence:g} s"}, now)
        self._publish()

    def _check_end(self, world: Supervision, now: float) -> None:
        """Every host has ended. Is anything still owed?"""
        if self.inquest.open:
            return
        if self._all_gone_at is None:
            self._all_gone_at = now
        waited = now - self._all_gone_at
        ended = departure.judge(world, self.charter.mode, waited, self.limits.last_word, now)
        if isinstance(ended, str):
            self._done(ended, now)
        elif ended is not None:
            self.inquest.add(ended)

    def _settle(self, now: float) -> None:
        if not self.phase.terminal:
            incident = self.inquest.settled(now)
            if incident is not None:
                self._fail(Step.LOST, incident, now)
        if self.world is not None:
            self._flush_world()
        if self.verdict_at is not None:
            self._out += self.winding.go_on(now - self.verdict_at, self.links.open, self.exit_code)

    def _flush_world(self) -> None:
        assert self.world is not None
        for effect in self.world.out:
            if isinstance(effect, ev.Say):
                self._say(effect.text)
            else:
                self._out.append(effect)
        self.world.out.clear()

    def _done(self, why: str, now: float) -> None:
        self.verdict_at = now
        self._move(Step.ENDED, why)
        self._end_world()
        self._out.append(ev.TellHub(Stop("done")))
        self._out += self.winding.end_fanout()

    def _fail(self, step: Step, incident: Incident, now: float, code: int = exits.NOT_DONE) -> None:
        self.verdict_at = now
        self.cause = incident
        self.exit_code = code
        cause = incident.cause()
        self._move(step, cause.what)
        self._end_world()
        self._say(f"run failed: {cause.what}")
        self._out += [ev.Send(link, Abort(cause.what, self.limits.kill_grace)) for link in self.links.open]
        self._out.append(ev.TellHub(Stop(cause.what)))
        if self.world is None:
            self._out += self.winding.end_fanout()

    def _end_world(self) -> None:
        if self.world is not None:
            self._flush_world()
            self.world.ending = True

    # what the shell may ask

    @property
    def ledger(self) -> Ledger:
        return self.window.ledger

    def beats(self) -> list[ev.Effect]:
        """A beat for every link; the shell asks once per beat."""
        trained = self.world is not None and self.world.trained
        return [ev.Send(link, Beat(trained)) for link in [*self.links.open, *self.reception.links]]

    def hear(self, link: int, now: float) -> None:
        """Bytes of `link` have arrived that are no event (a beat, log lines)."""
        self.links.hear(link, now)

    def host_of(self, link: int) -> str:
        return self.links.host_of(link)

    def _move(self, step: Step, why: str) -> None:
        self.phase = after(self.phase, step)
        self.why = why
        self._publish()

    def _say(self, text: str) -> None:
        self._out.append(ev.Say(text))

    def _publish(self) -> None:
        if not self._out or not isinstance(self._out[-1], ev.Publish):
            self._out.append(ev.Publish())

"""Everybody at the open door who is no member: hellos as they come, those whose verdict waits for a schema, and
rehearsals. Pure; `run.py` owns members and phase.

A model that differs is worth a question. Both sides are asked what their models consist of, and the refusal names the
first tensor that differs. Nobody waits for that but the host that will be refused; when the answers are in (or late)
its hello is judged again from the start, because members come and go meanwhile.

A rehearsal (``fdl join --try``) gets the verdict that a hello would get, is written down nowhere, and may then send
echoes to measure its road, within bounds of bytes and time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flodl_window.events import Effect, HelloReceived, Say, Send, Shut
from flodl_window.ledger import Entry
from flodl_window.links import Links
from flodl_window.phases import Phase
from flodl_window.schema_difference import first_difference
from flodl_window.window import Window
from flodl_window.words import ranks_text
from flodl_wire.faults import Refused
from flodl_wire.join_messages import ECHO_BUDGET, MAX_ECHO, AskSchema, Bye, Echo, Echoed, Reject, Schema
from flodl_wire.plane_messages import TensorSpec

INQUIRIES = 32  # at once; over it a model that differs is refused without naming the tensor
REHEARSALS = 8  # at once: each may cost ECHO_BUDGET both ways
REHEARSAL_S = 60.0


@dataclass
class Outcome:
    """What to do, and who is in now. `replaced`: the dead link whose place a newcomer took."""

    effects: list[Effect] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    replaced: int | None = None


@dataclass
class _Inquiry:
    event: HelloReceived
    since: float
    owner_link: int
    ours: list[TensorSpec] | None = None
    theirs: list[TensorSpec] | None = None


@dataclass
class _Rehearsal:
    host: str
    since: float
    up: int = 0
    down: int = 0


class Reception:
    """`patience`: seconds a schema may take; `quiet`: seconds after which a silent link may be a dead one; `members`:
    their links (the run's own, read only).
    """

    def __init__(self, window: Window, members: Links, patience: float, quiet: float) -> None:
        self._window = window
        self._members = members
        self._patience = patience
        self._quiet = quiet
        self._inquiries: dict[int, _Inquiry] = {}
        self._rehearsals: dict[int, _Rehearsal] = {}
        self._known: tuple[str, list[TensorSpec]] = ("", [])  # signature and schema of the cohort's model

    @property
    def links(self) -> list[int]:
        """Links that wait here; they are owed beats."""
        return [*self._inquiries, *self._rehearsals]

    def hello(self, event: HelloReceived, phase: Phase, now: float) -> Outcome:
        """Judge one. An outcome without entry has been answered, or waits here."""
        if event.hello.rehearsal:
            return self._rehearse(event, phase, now)
        replaced = self._dead_link(event, now)
        try:
            entry = self._window.admit(event, phase, now, replace=replaced is not None)
        except Refused as refused:
            if refused.code == "model-differs" and (asked := self._inquire(event, now)):
                return asked
            return self._refuse(event, refused, phase, now)
        return Outcome([Send(event.link, self._window.accept(event, entry, now))], [entry], replaced)

    def message(self, link: int, message: object, phase: Phase, now: float) -> Outcome | None:
        """What a link that waits here says, or a member's schema; None when it is nobody's business here."""
        if link in self._rehearsals:
            return self._rehearsing(link, message)
        if not isinstance(message, Schema):
            return Outcome() if link in self._inquiries else None
        done = []
        for newcomer, inquiry in self._inquiries.items():
            if link == newcomer and inquiry.theirs is None:
                inquiry.theirs = message.tensors
            elif link == inquiry.owner_link and inquiry.ours is None:
                inquiry.ours = message.tensors
                self._known = (self._window.ledger.seed("model")[0], message.tensors)
            if inquiry.ours is not None and inquiry.theirs is not None:
                done.append(newcomer)
        return _joined([self._conclude(newcomer, phase, now) for newcomer in done])

    def closed(self, link: int) -> bool:
        """True when a link that waited here is gone."""
        return self._inquiries.pop(link, None) is not None or self._rehearsals.pop(link, None) is not None

    def tick(self, phase: Phase, now: float) -> Outcome:
        """Verdicts that wait no longer, rehearsals that take too long."""
        late = [link for link, inquiry in self._inquiries.items() if now - inquiry.since >= self._patience]
        outcome = _joined([self._conclude(link, phase, now) for link in late])
        for link, rehearsal in list(self._rehearsals.items()):
            if now - rehearsal.since >= REHEARSAL_S or phase.terminal:
                del self._rehearsals[link]
                outcome.effects.append(Shut(link))
        return outcome

    # models that differ

    def _inquire(self, event: HelloReceived, now: float) -> Outcome | None:
        """Ask both sides for their schema; None when nobody can be asked."""
        signature, name = self._window.ledger.seed("model")
        owner = self._window.ledger.members.get(name)
        if owner is None or len(self._inquiries) >= INQUIRIES:
            return None
        ours = self._known[1] if self._known[0] == signature else None
        asked = ours is not None or any(inquiry.owner_link == owner.link for inquiry in self._inquiries.values())
        self._inquiries[event.link] = _Inquiry(event, now, owner.link, ours)
        effects: list[Effect] = [Send(event.link, AskSchema())]
        return Outcome(effects if asked else [*effects, Send(owner.link, AskSchema())])

    def _conclude(self, link: int, phase: Phase, now: float) -> Outcome:
        inquiry = self._inquiries.pop(link)
        event = inquiry.event
        try:
            entry = self._window.admit(event, phase, now)
        except Refused as refused:
            owner = self._window.ledger.seed("model")[1]
            if refused.code == "model-differs" and inquiry.theirs and inquiry.ours:
                where = first_difference(inquiry.theirs, inquiry.ours, owner)
                why = f"{refused.why}: {where}" if where else refused.why
                refused = Refused(refused.code, refused.what, why, refused.fix)
            return self._refuse(event, refused, phase, now)
        return Outcome([Send(event.link, self._window.accept(event, entry, now))], [entry])

    def _refuse(self, event: HelloReceived, refused: Refused, phase: Phase, now: float) -> Outcome:
        times = self._window.note(event.hello.host, event.address, refused, phase, now)
        effects = turn_away(event.link, refused)
        if _worth_a_line(times):
            more = f"; {times} times by now" if times > 1 else ""
            effects.append(Say(f"{refused} (from {event.address}{more})"))
        return Outcome(effects)

    def _dead_link(self, event: HelloReceived, now: float) -> int | None:
        """The link of the same box's entry when it has fallen silent: its agent was killed, or its road was cut."""
        there = self._window.ledger.members.get(event.hello.host)
        if there is None or not there.hello.boot_id or there.hello.boot_id != event.hello.boot_id:
            return None
        silent = self._members.silent_for(there.link, now) >= self._quiet
        return there.link if silent and there.agent != event.hello.agent else None

    # rehearsals

    def _rehearse(self, event: HelloReceived, phase: Phase, now: float) -> Outcome:
        host = event.hello.host

        def say(text: str) -> list[Say]:
            return [] if event.hello.quiet else [Say(text)]

        try:
            if len(self._rehearsals) >= REHEARSALS:
                what, why = f"cannot rehearse with {host}", f"{REHEARSALS} rehearsals are under way already"
                raise Refused("rehearsals-busy", what, why, "try again in a minute")
            accept = self._window.rehearse(event, phase, now)
        except Refused as refused:
            return Outcome(
                [
                    *turn_away(event.link, refused),
                    *say(f"rehearsal: {refused} (from {event.address}; it counts for nothing)"),
                ]
            )
        self._rehearsals[event.link] = _Rehearsal(host, now)
        words = f"rehearsal: {host} would get {ranks_text(accept.ranks)} (from {event.address}; it is not counted)"
        return Outcome([Send(event.link, accept), *say(words)])

    def _rehearsing(self, link: int, message: object) -> Outcome:
        rehearsal = self._rehearsals[link]
        if isinstance(message, Bye):
            del self._rehearsals[link]
            return Outcome([Shut(link)])
        if not isinstance(message, Echo):
            return Outcome()
        rehearsal.up += len(message.text)
        rehearsal.down += max(0, message.want)
        within = 0 <= message.want <= MAX_ECHO and len(message.text) <= MAX_ECHO
        if not within or max(rehearsal.up, rehearsal.down) > ECHO_BUDGET:
            del self._rehearsals[link]
            return Outcome([Shut(link), Say(f"rehearsal of {rehearsal.host} ended: it asked for more than it may")])
        return Outcome([Send(link, Echoed(message.number, "x" * message.want))])


def turn_away(link: int, refused: Refused) -> list[Effect]:
    """Tell whoever is at the other end why it is not, or no longer, in."""
    return [Send(link, Reject(refused.code, refused.what, refused.why, refused.fix)), Shut(link)]


def _worth_a_line(times: int) -> bool:
    """The first, the tenth, the hundredth …: a fleet that dials again every few seconds must not fill the log."""
    return str(times).rstrip("0") == "1"


def _joined(outcomes: list[Outcome]) -> Outcome:
    made = Outcome()
    for outcome in outcomes:
        made.effects += outcome.effects
        made.entries += outcome.entries
    return made

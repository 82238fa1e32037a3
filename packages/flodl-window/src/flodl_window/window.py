"""The open window: who knocks, what they are told, and whether it closes now. Pure; `run.py` owns the phase."""

from __future__ import annotations

from flodl_window import quorum
from flodl_window.events import HelloReceived
from flodl_window.formation import Charter
from flodl_window.ledger import Entry, Ledger
from flodl_window.phases import Phase
from flodl_wire.faults import Refused
from flodl_wire.join_messages import Accept, Reject

# The reference fails the window after 1,024 refusals. Here they cost nobody anything: a fleet that dials again every
# few seconds would else end a patient operator's run. Memory stays bounded.
REFUSED_KEPT = 16


class Window:
    """`opened`: when, on the clock that `now` is read from."""

    def __init__(self, charter: Charter, opened: float) -> None:
        self.charter = charter
        self.opened = opened
        self.ledger = Ledger(charter.roster, charter.cohort, charter.knobs.walk_ins)
        self.armed = False
        self.refused: list[dict[str, object]] = []  # the last ones, for state.json
        self.refusals: dict[str, Refused] = {}  # the last one of each host on the roster

    def admit(self, event: HelloReceived, phase: Phase, now: float) -> tuple[Accept | Reject, Entry | None]:
        """The answer to a hello, and its entry when it is in."""
        hello, knobs = event.hello, self.charter.knobs
        try:
            if not phase.window_open:
                raise Refused(
                    "window-closed",
                    f"cannot admit {hello.host or 'a host'}",
                    f"the window is closed: the run is {phase.value}",
                    "dial again for the next run (fdl join --persist does)",
                )
            entry = self.ledger.admit(hello, event.link, event.address, now - self.opened)
        except Refused as refused:
            self._note(event, refused, now)
            return Reject(refused.code, refused.what, refused.why, refused.fix), None
        wait = max(0.0, self.opened + knobs.cap_s - now)
        salt = None if event.keyed else self.charter.salt_hex
        return Accept(self.ledger.ranks_of(entry.host), wait, self.charter.instance, salt), entry

    def judge(self, phase: Phase, now: float) -> quorum.Judgement:
        return quorum.judge(self.charter.knobs, self.ledger, phase, now - self.opened, self.armed)

    def fire(self, phase: Phase, trusted: bool) -> tuple[int, dict[str, object]]:
        """The operator's switch; the answer as HTTP status and document."""
        status, body = quorum.answer_start(self.charter.knobs, self.ledger, phase, trusted)
        self.armed = self.armed or status == 200
        return status, body

    def _note(self, event: HelloReceived, refused: Refused, now: float) -> None:
        host = event.hello.host
        if self.ledger.named(host) is not None:
            self.refusals[host] = refused
        at = round(now - self.opened, 3)
        self.refused.append(
            {"host": host, "address": event.address, "code": refused.code, "why": refused.why, "at_secs": at}
        )
        del self.refused[:-REFUSED_KEPT]

"""The open window: who may come in, what they are told, and whether it closes now. Pure; `run.py` owns the phase."""

from __future__ import annotations

from flodl_window import quorum
from flodl_window.events import HelloReceived
from flodl_window.formation import Charter
from flodl_window.ledger import Entry, Ledger
from flodl_window.phases import Phase
from flodl_window.refusals import Refusals
from flodl_wire.faults import Fault, Refused
from flodl_wire.join_messages import Accept, Hello
from flodl_wire.served_runs import newer_run


class Window:
    """`opened`: when, on the clock that `now` is read from."""

    def __init__(self, charter: Charter, opened: float) -> None:
        self.charter = charter
        self.opened = opened
        self.ledger = Ledger(charter.roster, charter.cohort, charter.knobs.walk_ins, charter.fanout)
        self.armed = False
        self.served: tuple[str, ...] = ()  # what this box has published, the newest run last
        self.refusals = Refusals()

    def admit(self, event: HelloReceived, phase: Phase, now: float, *, replace: bool = False) -> Entry:
        """Write a host down; `replace`: its own dead entry makes room. Raises Refused, and then nothing has changed."""
        self._check_open(event, phase)
        self._check_run(event)
        entry = self.ledger.admit(event.hello, event.link, event.address, now - self.opened, replace=replace)
        self.refusals.forgive(entry.host, event.address)
        return entry

    def accept(self, event: HelloReceived, entry: Entry, now: float) -> Accept:
        """What a host that is in is told."""
        return self._accept(self.ledger.ranks_of(entry.host), None if event.keyed else self.charter.salt_hex, now)

    def rehearse(self, event: HelloReceived, phase: Phase, now: float) -> Accept:
        """What it would be told; nothing is written down and no salt is given. Raises Refused."""
        self._check_open(event, phase)
        self._check_run(event)
        return self._accept(self.ledger.rehearse(event.hello), None, now)

    def note(self, host: str, address: str, refused: Refused, phase: Phase, now: float) -> int:
        """Write a refusal down; how often this host has been refused for this by now."""
        return self.refusals.note(host, address, refused, now - self.opened, counts=phase.window_open).times

    def note_stranger(self, address: str, fault: Fault, now: float) -> None:
        self.refusals.note_stranger(address, fault, now - self.opened)

    def serve(self, runs: tuple[str, ...], phase: Phase, now: float) -> list[tuple[Entry, Refused]]:
        """These runs were published here, the newest last. Returns the members that hold an older one, and what each is
        to be told; they are still in.
        """
        self.served = runs
        weighed = [(entry, self._stale(entry.hello, "keep")) for entry in self.ledger.members.values()]
        stale = [(entry, refused) for entry, refused in weighed if refused is not None]
        for entry, refused in stale:
            self.note(entry.host, entry.address, refused, phase, now)
        return stale

    def strike(self, gone: dict[str, str]) -> list[str]:
        """Members (host → why) are out again before the world formed; the lines worth saying about it."""
        for host in gone:
            self.ledger.strike(host)
        lines = [f"{host} is out again: {why}" for host, why in gone.items()]
        if self._disarm_below_quorum():
            lines.append("the start is withdrawn: quorum is no longer met; fire it again when it is")
        return lines

    def judge(self, phase: Phase, now: float) -> quorum.Judgement:
        return quorum.judge(self.charter.knobs, self.ledger, phase, now - self.opened, self.armed)

    def fire(self, phase: Phase, trusted: bool) -> tuple[int, dict[str, object]]:
        """The operator's switch; the answer as HTTP status and document."""
        status, body = quorum.answer_start(self.charter.knobs, self.ledger, phase, trusted)
        self.armed = self.armed or status == 200
        return status, body

    def _disarm_below_quorum(self) -> bool:
        """A start that was fired and has not formed a world yet ends with the quorum it was fired for: it is never
        queued. True when it did.
        """
        held = quorum.need(self.charter.knobs.quorum, self.ledger).met(self.ledger.joined)
        withdrawn = self.armed and not held
        self.armed = self.armed and held
        return withdrawn

    def _accept(self, ranks: list[int], salt: str | None, now: float) -> Accept:
        wait = max(0.0, self.opened + self.charter.knobs.cap_s - now)
        return Accept(ranks, wait, self.charter.instance, salt, self.charter.cohort.args)

    @staticmethod
    def _check_open(event: HelloReceived, phase: Phase) -> None:
        if not phase.window_open:
            raise Refused(
                "window-closed",
                f"cannot admit {event.hello.host or 'a host'}",
                f"the window is closed: the run is {phase.value}",
                "dial again for the next run (fdl join --persist does)",
            )

    def _check_run(self, event: HelloReceived) -> None:
        """A stale walk-in that came first would bind the cohort to its run, and keep everybody else out."""
        if refused := self._stale(event.hello, "admit"):
            raise refused

    def _stale(self, hello: Hello, verb: str) -> Refused | None:
        newer = newer_run(self.served, hello.run_id)
        if not newer:
            return None
        return Refused(
            "run-superseded",
            f"cannot {verb} {hello.host or 'a host'}",
            f"it holds run {hello.run_id[:8]}, and run {newer[:8]} has been published over it",
            "it takes the new run when it dials again",
        )

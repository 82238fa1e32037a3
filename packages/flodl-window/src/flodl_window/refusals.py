"""Who was turned away, why, and what would mend it: the list in state.json, and the count that ends a window. Pure.

A fleet dials again every few seconds, so one host's refusals of one kind count once, however often it comes. Strangers
that never complete a handshake are listed (a wrong token is what an operator looks for most) but count for nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flodl_window.verdict import Incident, Surety
from flodl_wire.faults import Fault

MOST = 1024  # different refusals; one more fails the window (the reference's bound)
KEPT = 64  # of those who said hello, the last ones
STRANGERS_KEPT = 16


@dataclass
class Refusal:
    """One kind of refusal of one host, and how often it has happened."""

    host: str
    address: str
    fault: Fault
    at_s: float  # of the last time, after the window opened
    times: int = 1

    def as_dict(self) -> dict[str, object]:
        fault = self.fault
        return {
            "host": self.host,
            "address": self.address,
            "code": fault.code,
            "what": fault.what,
            "why": fault.why,
            "fix": fault.fix,
            "at_secs": round(self.at_s, 3),
            "times": self.times,
        }


@dataclass
class Refusals:
    """In the order of the last time each happened."""

    _hosts: dict[tuple[str, str], Refusal] = field(default_factory=dict)
    _strangers: dict[tuple[str, str], Refusal] = field(default_factory=dict)
    _counted: set[tuple[str, str]] = field(default_factory=set)

    @property
    def count(self) -> int:
        """Different refusals of hosts that said hello."""
        return len(self._counted)

    @property
    def too_many(self) -> bool:
        return len(self._counted) > MOST

    def note(self, host: str, address: str, fault: Fault, at_s: float, *, counts: bool = True) -> Refusal:
        """Write one down; `counts`: while the window is open."""
        key = (host, fault.code)
        if counts and not self.too_many:
            self._counted.add(key)
        return _put(self._hosts, key, Refusal(host, address, fault, at_s), KEPT)

    def note_stranger(self, address: str, fault: Fault, at_s: float) -> Refusal:
        """Somebody who speaks the protocol and could not prove the key, or speaks another version."""
        return _put(self._strangers, (address, fault.code), Refusal("", address, fault, at_s), STRANGERS_KEPT)

    def forgive(self, host: str, address: str) -> None:
        """It is in now: what kept it, or its address, out is settled."""
        for key in [key for key in self._hosts if key[0] == host]:
            del self._hosts[key]
        for key in [key for key in self._strangers if key[0] == address]:
            del self._strangers[key]

    def last_of(self, host: str) -> Fault | None:
        """Why `host` was turned away last."""
        return next((refusal.fault for key, refusal in reversed(self._hosts.items()) if key[0] == host), None)

    def listed(self) -> list[dict[str, object]]:
        """For state.json, the latest last."""
        both = sorted([*self._hosts.values(), *self._strangers.values()], key=lambda refusal: refusal.at_s)
        return [refusal.as_dict() for refusal in both]

    def siege(self, now: float) -> Incident | None:
        """What ends a window that has had to refuse too many."""
        if not self.too_many:
            return None
        code, times = Counter(code for _, code in self._counted).most_common(1)[0]
        why = f"{len(self._counted)} different refusals, most often {code} ({times})"
        fix = "fdl status says who it was: mend the fleet, or change controller.join.token, and start again"
        return Incident(now, Surety.CAUSE, "too many hellos were refused", why=why, fix=fix)


def _put(book: dict[tuple[str, str], Refusal], key: tuple[str, str], refusal: Refusal, most: int) -> Refusal:
    before = book.pop(key, None)
    refusal.times += before.times if before is not None else 0
    book[key] = refusal
    if len(book) > most:
        del book[next(iter(book))]
    return refusal

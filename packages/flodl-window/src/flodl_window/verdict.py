"""Which of several misfortunes came first.

When a run breaks, reports arrive by different roads: a rank's exit through its agent, its closed socket through the
relay and the hub, the relay's exit through the agent again. The first to arrive is often an echo. So every incident
carries how sure it is to be a cause, and a doubtful one is held for a moment (`GRACE`) in which a surer one may still
arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from flodl_wire.state import Cause

GRACE = 1.0  # seconds a doubtful incident waits; roads differ by milliseconds, a dying interpreter by some hundred


class Surety(IntEnum):
    """How sure an incident is to be a cause; smaller is surer."""

    CAUSE = 0  # nothing else in the run makes this happen
    DOUBTFUL = 1  # may echo something whose report is still on the road
    ECHO = 2  # follows from what is known already


@dataclass
class Incident:
    """Something the run does not survive. `what` is the sentence people read; it may still gain detail while held."""

    at: float
    surety: Surety
    what: str
    host: str = ""
    rank: int | None = None
    why: str = ""
    fix: str = ""
    tail: list[str] = field(default_factory=list)

    def cause(self) -> Cause:
        what = f"{self.what}: {self.why}" if self.why else self.what
        return Cause(what, self.host, self.rank, list(self.tail), self.fix)


def first_cause(incidents: list[Incident]) -> Incident:
    """The earliest of the surest."""
    return min(incidents, key=lambda incident: (incident.surety, incident.at))


class Inquest:
    """Collects incidents and says when the verdict may be spoken."""

    def __init__(self, grace: float = GRACE) -> None:
        self.incidents: list[Incident] = []
        self._grace = grace
        self._settles: float | None = None

    def add(self, incident: Incident) -> None:
        self.incidents.append(incident)
        settles = incident.at if incident.surety is Surety.CAUSE else incident.at + self._grace
        self._settles = settles if self._settles is None else min(self._settles, settles)

    def settle_now(self, now: float) -> None:
        """What was missing has arrived."""
        if self._settles is not None:
            self._settles = min(self._settles, now)

    @property
    def open(self) -> bool:
        """True once there is something to decide."""
        return bool(self.incidents)

    def settled(self, now: float) -> Incident | None:
        """The first cause, once nothing more is waited for."""
        if self._settles is None or now < self._settles:
            return None
        return first_cause(self.incidents)

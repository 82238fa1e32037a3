"""How long is waited for what, and ranks that cannot reach one another in a mode that needs it."""

from __future__ import annotations

from dataclasses import dataclass

from flodl_planes.coordinator.hub_events import HubOrder
from flodl_planes.coordinator.training import Training
from flodl_wire.faults import Broken, Fault
from flodl_wire.plane_messages import Moved


@dataclass(frozen=True)
class Limits:
    """Seconds: how long a silent rank waits for the reason, how long a failed collective waits for a death that
    explains it, and how long a round may stand still (None: for ever).
    """

    grace_s: float = 2.0
    explain_s: float = 17.0
    stall_s: float | None = 300.0


LIMITS = Limits()


class Roads:
    """Who could not average directly, until somebody's death explains it."""

    def __init__(self) -> None:
        self._unexplained: tuple[int, Moved, float] | None = None  # and since when
        self._heard, self._heard_at = 0, 0.0

    def heard(self, moved: int, now: float) -> None:
        """How far averages have come: a slow link is no broken one."""
        if moved != self._heard:
            self._heard, self._heard_at = moved, now

    def moved(self, training: Training, rank: int, message: Moved, now: float) -> list[HubOrder]:
        """What a rank says of its part in a `direct` round."""
        if not message.error:
            return training.moved(rank, message)
        if training.awaits(message) and self._unexplained is None:
            self._unexplained = (rank, message, now)  # mostly somebody's death, which is told of by others
        return []

    def barred(self, training: Training, mode: str, limits: Limits, now: float) -> Fault | None:
        """The fault when a round stands still, or ranks cannot average directly and nobody's death explains it."""
        still = now - max(training.issued_at, self._heard_at)
        if training.open and limits.stall_s is not None and still > limits.stall_s:
            return Broken(
                "round-stalled",
                "cannot go on training",
                f"round {training.open.number} has not ended, and nothing of it has moved for {limits.stall_s:.0f} s",
                "look at the network between the hosts",
            )
        if self._unexplained is None:
            return None
        rank, message, since = self._unexplained
        if not training.awaits(message):
            self._unexplained = None
            return None
        if now - since < (limits.grace_s if message.forming else limits.explain_s):
            return None
        return Broken(
            "needs-direct-reach" if message.forming else "collective-failed",
            f"cannot average in mode {mode}: it needs direct reach between the ranks"
            if message.forming
            else f"cannot average in mode {mode}",
            f"{training.cohort.where(rank)}: {message.error}",
            "open all TCP ports between the hosts, or use --mode cpu_cadence, which needs the controller's port only",
        )

"""The kill ladder: TERM to all, then, after a grace, KILL until nothing is left. Pure; standard library only (the
keeper uses it).

Time is an argument, in seconds of any steady clock.
"""

from __future__ import annotations

import signal


class Ladder:
    """When which signal is due. A second order never gives more time than the first."""

    def __init__(self) -> None:
        self._kill_at: float | None = None

    @property
    def begun(self) -> bool:
        return self._kill_at is not None

    def order(self, now: float, grace: float) -> None:
        """End everything: TERM now and KILL `grace` seconds later; with no grace, KILL now."""
        kill_at = now + max(0.0, grace)
        if self._kill_at is None or kill_at < self._kill_at:
            self._kill_at = kill_at

    def due(self, now: float) -> int | None:
        """The signal that every survivor should have had by now."""
        if self._kill_at is None:
            return None
        return signal.SIGKILL if now >= self._kill_at else signal.SIGTERM

    def overdue(self, now: float) -> float:
        """Seconds since KILL became due (0 before): what still lives then, no signal of ours ends."""
        return 0.0 if self._kill_at is None else max(0.0, now - self._kill_at)

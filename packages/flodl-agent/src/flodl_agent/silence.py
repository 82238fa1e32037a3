"""How long somebody has been silent, and whether that is too long. Pure; standard library only (the keeper uses it).

Agent and keeper watch each other by it. Who is seen to stand still (stopped by a signal) is given up after `limit`
seconds. Who merely does not speak may wait for a processor or a disk on a busy box, and is given PATIENCE times as
long. Time in which the one who watches did not run itself (a laptop asleep, a frozen container, a box under load)
counts for next to nothing: then nobody's silence can be told from our own.
"""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 3
_LOOKS = 5  # in `limit`, at least


class Silence:
    """`now` is in seconds of any steady clock; `every`: seconds between two looks at most."""

    def __init__(self, limit: float, now: float) -> None:
        self.every = limit / _LOOKS
        self._limit = limit
        self._quiet = 0.0
        self._looked = now

    def broken(self, now: float) -> None:
        """A word was heard."""
        self._quiet = 0.0
        self._looked = now

    def too_long(self, now: float, stands_still: Callable[[], bool]) -> float:
        """The seconds of it when they are too many, else 0."""
        self._quiet += min(now - self._looked, 2 * self.every)
        self._looked = now
        if self._quiet <= self._limit:
            return 0.0
        return self._quiet if self._quiet > PATIENCE * self._limit or stands_still() else 0.0

"""How far a rank of cpu_async may go beyond its count before the average of that window must be in (reference §6.11).

A rank that has done its count goes on with the next window's batches while the average is made. The allowance bounds
how old an average may be when it arrives: it starts at 3, follows what the rank's last averages needed, ends at 15.
"""

from __future__ import annotations

import math
from collections import deque

FIRST = 3
CEILING = 15
MEMORY = 5  # windows: as long as speeds are trusted (ours)


class Overshoot:
    """Batches, per rank. `pinned`: what the user set (max_overshoot), for every rank and for good."""

    def __init__(self, pinned: int | None = None) -> None:
        self._pinned = pinned
        self._needed: dict[int, deque[int]] = {}

    def of(self, rank: int) -> int:
        if self._pinned is not None:
            return self._pinned
        return min(CEILING, max(FIRST, *self._needed.get(rank, ()), 0))

    def report(self, rank: int, late_ms: float, ms_per_batch: float) -> None:
        """An average reached `rank` so late after its deposit; one batch more, since it is taken in between batches."""
        if ms_per_batch > 0 and math.isfinite(late_ms):
            needed = min(CEILING, math.ceil(late_ms / ms_per_batch) + 1)
            self._needed.setdefault(rank, deque(maxlen=MEMORY)).append(needed)

    def drop(self, rank: int) -> None:
        self._needed.pop(rank, None)

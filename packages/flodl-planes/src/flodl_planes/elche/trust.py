"""The speed of one rank: a mean over its last windows, cleared when it has not been heard of for as many."""

from __future__ import annotations

import math
from collections import deque

from flodl_planes.elche.settings import TRUST_SAMPLES

# Ours: the plain mean takes five windows to follow a rank that changes speed (a box that throttles, a neighbour that
# leaves). Two samples in a row on the same side of the mean by more than this mean the speed has changed, and the old
# samples are forgotten; one alone is noise.
CHANGE = 0.30


class TrustWindow:
    """Milliseconds per batch of one rank. `smoothed` is 0 when nothing is known."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=TRUST_SAMPLES)
        self.misses = 0

    @property
    def smoothed(self) -> float:
        return sum(self._samples) / len(self._samples) if self._samples else 0.0

    def push(self, ms: float) -> None:
        """One window's milliseconds per batch. Values that are no positive finite number count as a miss."""
        if not (math.isfinite(ms) and ms > 0):
            self.miss()
            return
        self.misses = 0
        if len(self._samples) >= 2:
            last = self._samples[-1]
            before = sum(list(self._samples)[:-1]) / (len(self._samples) - 1)
            if min(last, ms) > before * (1 + CHANGE) or max(last, ms) < before / (1 + CHANGE):
                self._samples.clear()
                self._samples.append(last)
        self._samples.append(ms)

    def clear(self) -> None:
        """Forget everything."""
        self._samples.clear()
        self.misses = 0

    def miss(self) -> None:
        """A window without a usable figure; five in a row and what we knew is too old."""
        self.misses += 1
        if self.misses >= TRUST_SAMPLES:
            self._samples.clear()

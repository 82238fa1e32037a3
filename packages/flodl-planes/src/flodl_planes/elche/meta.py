"""The controller above the controller: when training itself changes pace, the anchor that grew before may be too large
(reference §6.10; how the pieces are read where the sheet is silent is said at each).

Two things shrink it. A learning rate that drops sharply (a step schedule): what ranks do between two averages now
weighs less, and the consensus should settle quickly. And a guard that objects again and again: suppressing growth was
not enough.
"""

from __future__ import annotations

import math
from collections import deque

from flodl_planes.elche.guards import NudgeDown, Stable, Verdict

RATES = 3  # windows that a drop of the learning rate may take
SHARP_DROP = 0.30
DROP_BASE = 0.5
ANCHORS = 5  # windows over which the anchor's own trend is read
SUSTAINED = {"warmup": (5, 0.3), "stable": (3, 0.5), "mature": (2, 0.7)}  # phase → objections in a row, base
SMALLEST, LARGEST = 0.1, 0.95


class MetaController:
    """`read` once per window, with what the guard said of it."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=RATES)
        self._anchors: deque[int] = deque(maxlen=ANCHORS)
        self._objections = 0

    def read(self, phase: str, anchor: int, rate: float | None, verdict: Verdict) -> NudgeDown | None:
        """`rate`: the learning rate of this window, None where nobody says. Says nothing in the probe phase."""
        if phase == "probe":
            return None
        self._anchors.append(anchor)
        factor = 1.0
        if self._dropped(rate):
            factor *= self._effective(DROP_BASE)
        needed, base = SUSTAINED[phase]
        self._objections = 0 if isinstance(verdict, Stable) else self._objections + 1
        if self._objections >= needed:
            factor *= self._effective(base)
            self._objections = 0  # so many again before the next one (ours)
        return NudgeDown(factor) if factor < 1 else None

    def _dropped(self, rate: float | None) -> bool:
        """Whether the rate fell by more than 30 % within three windows; said once per drop (ours)."""
        if rate is None or not math.isfinite(rate) or rate < 0:
            return False
        self._rates.append(rate)
        highest = max(self._rates)
        if rate >= highest * (1 - SHARP_DROP):
            return False
        self._rates.clear()
        self._rates.append(rate)
        return True

    def _effective(self, base: float) -> float:
        """`base`, stronger while the anchor has been growing."""
        mean = sum(self._anchors) / len(self._anchors)
        trend = (self._anchors[-1] - mean) / mean
        return min(max(base - (1 - base) * trend, SMALLEST), LARGEST)

"""Verdicts on convergence: may the window grow, must it shrink?

A reading is the cohort's divergence at one average, ‖mine − average‖ / ‖average‖, the largest over the ranks. Where
ranks do not measure it every verdict is Stable.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

NOISE_FLOOR = 1e-8
GROWTH_SMOOTHING = 0.9
SUPPRESS_ABOVE = 1e-3
NUDGE_ABOVE = 1e-2
READINGS = 3


@dataclass(frozen=True)
class Stable:
    """Nothing to object."""


@dataclass(frozen=True)
class SuppressGrowth:
    """Drop a proposed growth, and grow no more until things have been stable for a while."""


@dataclass(frozen=True)
class NudgeDown:
    """Shrink the anchor to `factor` of what it is."""

    factor: float


Verdict = Stable | SuppressGrowth | NudgeDown


class Guard(Protocol):
    def read(self, divergence: float, steps: int) -> Verdict:
        """One average: its divergence, and the most steps any rank had done for it."""


class NoGuard:
    def read(self, divergence: float, steps: int) -> Verdict:
        return Stable()


class TrendGuard:
    """Level: three rises in a row that end above the threshold.

    Ours: what must rise is the divergence per step. While windows keep their length that is the same; where they grow,
    ranks that part no faster than before drift further, and a window that grows may not be its own objection.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._ring: deque[float] = deque(maxlen=5)

    def read(self, divergence: float, steps: int) -> Verdict:
        self._ring.append(divergence / max(1, steps))
        last = list(self._ring)[-(READINGS + 1) :]
        rising = len(last) == READINGS + 1 and all(a < b for a, b in pairwise(last))
        return SuppressGrowth() if rising and divergence > self.threshold else Stable()


class MsfGuard:
    """Growth: λ = ln(D_t / D_t-1) / steps, an exponential mean with bias correction; three readings in a row above a
    bound.
    """

    def __init__(self) -> None:
        self._previous: float | None = None
        self._mean = 0.0
        self._weight = 0.0
        self._recent: deque[float] = deque(maxlen=READINGS)

    def read(self, divergence: float, steps: int) -> Verdict:
        if divergence < NOISE_FLOOR or not math.isfinite(divergence):
            return Stable()
        previous, self._previous = self._previous, divergence
        if previous is None or steps < 1:
            return Stable()
        rate = math.log(divergence / previous) / steps
        self._mean = GROWTH_SMOOTHING * self._mean + (1 - GROWTH_SMOOTHING) * rate
        self._weight = GROWTH_SMOOTHING * self._weight + (1 - GROWTH_SMOOTHING)
        self._recent.append(self._mean / self._weight)
        if len(self._recent) == READINGS and min(self._recent) > NUDGE_ABOVE:
            return NudgeDown(0.5)
        if len(self._recent) == READINGS and min(self._recent) > SUPPRESS_ABOVE:
            return SuppressGrowth()
        return Stable()


def guard(name: str, threshold: float) -> Guard:
    if name == "msf":
        return MsfGuard()
    return TrendGuard(threshold) if name == "trend" else NoGuard()

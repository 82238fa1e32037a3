"""Paired differences over seeds, and the rule: nobody may be behind by more than the spread of one rank alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

# Student's t, two-sided 95 %, for 1 … 9 degrees of freedom (any table); with more seeds the last is a little strict
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


def spread(metrics: Mapping[int, float]) -> float:
    """Standard deviation over seeds (seed → metric), n - 1 in the denominator; 0 for a single one."""
    return statistics.stdev(metrics.values()) if len(metrics) > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """All in the metric's own unit. `difference`: mean of the pairs', above 0 where the contender is better;
    `deviation`: standard deviation of the pairs' differences; `behind`: in how many seeds it was worse; `spread`: that
    of one rank alone."""

    seeds: int
    mean: float
    difference: float
    deviation: float
    behind: int
    spread: float

    @property
    def kept(self) -> bool:
        """The rule. An accuracy is a count over a few hundred samples, so that the two may well be the same number."""
        return self.difference >= -self.spread or math.isclose(self.difference, -self.spread, rel_tol=1e-6)

    @property
    def margin(self) -> float:
        """The true mean difference is within this of `difference`, at 95 %; infinite for a single seed."""
        if self.seeds < 2:
            return math.inf
        return T95[min(self.seeds - 2, len(T95) - 1)] * self.deviation / math.sqrt(self.seeds)

    @property
    def told(self) -> bool:
        """Can these seeds tell the difference from none?"""
        return abs(self.difference) > self.margin


def compare(contender: Mapping[int, float], peer: Mapping[int, float], alone: Mapping[int, float], *,
            higher_is_better: bool) -> Comparison:  # fmt: skip
    """Over the seeds that both have (seed → metric). Raises ValueError when there is none."""
    seeds = sorted(contender.keys() & peer.keys())
    if not seeds:
        raise ValueError("no seed was run by both")
    sign = 1 if higher_is_better else -1
    differences = [sign * (contender[seed] - peer[seed]) for seed in seeds]
    return Comparison(
        seeds=len(seeds),
        mean=statistics.mean(contender[seed] for seed in seeds),
        difference=statistics.mean(differences),
        deviation=statistics.stdev(differences) if len(seeds) > 1 else 0.0,
        behind=sum(difference < 0 for difference in differences),
        spread=spread(alone),
    )


def sentence(found: Comparison, *, judged: bool = True) -> str:
    """What the row says, in plain words; `judged`: by the rule."""
    times = f"{abs(found.difference) / found.spread:.1f} spreads" if found.spread else f"{abs(found.difference):.4f}"
    seeds = f"{found.behind} of {found.seeds} seeds"
    if not found.kept and judged:
        certain = found.difference + found.margin < -found.spread
        doubt = "" if certain else "; these seeds do not settle whether it is more than one"
        return f"WORSE: behind by {times}, in {seeds}{doubt}."
    if not found.told:
        return f"No difference that {found.seeds} seeds could tell; behind in {found.behind}."
    if found.difference > 0:
        return f"Ahead by {times}."
    within = ", which is within the spread" if found.kept else ""
    return f"Behind by {times}, in {seeds}{within}."

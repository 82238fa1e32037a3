"""Who is the anchor: the rank the others' counts are measured against."""

from __future__ import annotations

from collections.abc import Mapping

from flodl_planes.elche.settings import COHORT_BAND, DOMINANCE_MARGIN


def elect(smoothed: Mapping[int, float], current: int | None) -> int | None:
    """The anchor among ranks with a speed (ms per batch > 0); None when there is none.

    Slow cohort: within 15 % of the slowest. A lone member wins. The current anchor stays while it is in the cohort
    and nobody is 10 % slower than it: two equal boxes must not take turns. Else the lowest rank of the cohort.
    """
    known = {rank: ms for rank, ms in sorted(smoothed.items()) if ms > 0}
    if not known:
        return None
    slowest = max(known.values())
    cohort = [rank for rank, ms in known.items() if ms >= (1 - COHORT_BAND) * slowest]
    if len(cohort) == 1:
        return cohort[0]
    if current in cohort:
        challengers = [rank for rank in cohort if known[rank] > known[current] * (1 + DOMINANCE_MARGIN)]
        # The last of equal maxima, as the original picks it.
        return max(challengers, key=lambda rank: (known[rank], rank)) if challengers else current
    return cohort[0]

"""Who is the anchor: the rank the others' counts are measured against."""

from __future__ import annotations

from collections.abc import Mapping

from flodl_planes.elche.settings import COHORT_BAND, DOMINANCE_MARGIN
from flodl_wire.plane_messages import Gpu

GENERATION = 10  # GB of memory that a generation of cards is worth (the reference's)


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


def presumed(gpus: Mapping[int, Gpu | None]) -> int | None:
    """The anchor before anything was measured: the rank whose card is the oldest and smallest, the lowest rank of
    equals. None unless all ranks have cards that are known, of one vendor: others cannot be compared.
    """
    known = {rank: gpu for rank, gpu in sorted(gpus.items()) if gpu is not None}
    if not known or len(known) < len(gpus) or len({gpu.vendor for gpu in known.values()}) > 1:
        return None
    return min(known, key=lambda rank: GENERATION * known[rank].generation + known[rank].memory_gb)

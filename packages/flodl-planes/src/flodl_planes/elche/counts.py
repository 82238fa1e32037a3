"""From speeds to batches per rank."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from flodl_planes.elche.settings import MAX_SPEED_RATIO

# Ours: a rank with a single batch in a window gives no figure of its delivered speed (the first batch is never
# counted), so a lone batch goes to another rank when that makes the window at most this much longer.
LONE_COST = 0.10


def half_away(value: float) -> int:
    """A value of 0 or more to the nearest whole number, halves away from zero (Python's round(22.5) is 22)."""
    return math.floor(value + 0.5)


def target(anchor: int, anchor_ms: float, rank_ms: float) -> int:
    """Batches a rank of `rank_ms` per batch does while the anchor, at `anchor_ms`, does `anchor`."""
    if rank_ms <= 0 or abs(rank_ms - anchor_ms) < 1e-6:
        return anchor
    return max(1, half_away(anchor * min(anchor_ms / rank_ms, MAX_SPEED_RATIO)))


def less_slack(count: int, slack_ms: float, rank_ms: float) -> int:
    """`count` less the batches a rank cannot do because it is kept busy for `slack_ms` (a callback)."""
    slack = math.ceil(slack_ms / rank_ms) if slack_ms > 0 and rank_ms > 0 else 0
    return max(1, count - slack)


def cap_to_epoch(counts: Mapping[int, int], cap: int) -> tuple[dict[int, int], bool]:
    """Counts scaled down to an epoch of `cap` batches, at least 1 each, what is left over to the largest; and
    whether it had to be.
    """
    total = sum(counts.values())
    if total <= cap:
        return dict(counts), False
    scaled = {rank: max(1, count * cap // total) for rank, count in counts.items()}
    left = cap - sum(scaled.values())
    if left > 0:
        largest = max(scaled, key=lambda rank: (counts[rank], -rank))
        scaled[largest] += left
    return scaled, True


def within_spread(counts: Mapping[int, int], limit: int) -> dict[int, int]:
    """Counts of which none is more than `limit` above the smallest (0: lockstep); a rank that gets none does not count.

    The reference throttles a rank that is too far ahead while the window runs (§6.11); a window that is dealt as a
    whole can be dealt so that none will be.
    """
    most = max(1, min(counts.values(), default=1)) + limit
    return {rank: min(count, most) for rank, count in counts.items()}


def clamp_total(counts: Mapping[int, int], total: int) -> dict[int, int]:
    """Counts scaled down so that they sum to `total`, the remainder one each to the first ranks. A rank may end with
    none.
    """
    have = sum(counts.values())
    if have <= total:
        return dict(counts)
    scaled = {rank: count * total // have for rank, count in sorted(counts.items())}
    left = total - sum(scaled.values())
    for rank in list(scaled)[:left]:
        scaled[rank] += 1
    return scaled


def finish_together(total: int, ms: Mapping[int, float], head_start: Mapping[int, float]) -> dict[int, int]:
    """As `share_out`, for the window at an epoch's end, where counts no longer fit; and no rank is left alone with one
    batch where another can do it as well.
    """
    start = {rank: max(0.0, head_start.get(rank, 0.0)) for rank in ms}
    return _without_lone_batches(share_out(total, ms, start), ms, start)


def share_out(total: int, ms: Mapping[int, float], head_start: Mapping[int, float]) -> dict[int, int]:
    """`total` batches so that the last rank is done as early as possible.

    `ms`: milliseconds per batch of each rank, all > 0. `head_start`: milliseconds a rank is kept from starting (it
    evaluates). Identical pieces on machines of unequal speed: giving each to whoever would finish it first is
    optimal. Ours; the reference apportions by largest remainder, which is up to half a batch of the slowest rank
    worse per epoch, and short epochs feel it.
    """
    start = {rank: max(0.0, head_start.get(rank, 0.0)) for rank in ms}
    level = _water_level(total, ms, start)
    counts = {rank: max(0, math.floor((level - start[rank]) / ms[rank] + 1e-9)) for rank in ms}
    queue = [(start[rank] + (counts[rank] + 1) * ms[rank], rank) for rank in sorted(ms)]
    heapq.heapify(queue)
    for _ in range(total - sum(counts.values())):
        ends, rank = queue[0]
        counts[rank] += 1
        heapq.heapreplace(queue, (ends + ms[rank], rank))
    return counts


def _water_level(total: int, ms: Mapping[int, float], start: Mapping[int, float]) -> float:
    """The moment at which all would be done if batches could be split; a hair below, so that floors never exceed the
    total.
    """
    taking = sorted(ms, key=lambda rank: start[rank])
    rate = load = level = 0.0
    for index, rank in enumerate(taking):
        rate += 1 / ms[rank]
        load += start[rank] / ms[rank]
        level = (total + load) / rate
        if index + 1 == len(taking) or level <= start[taking[index + 1]]:
            break
    return level * (1 - 1e-9) - 1e-9


def _without_lone_batches(
    counts: dict[int, int], ms: Mapping[int, float], start: Mapping[int, float]
) -> dict[int, int]:
    def ends(rank: int, count: int) -> float:
        return start[rank] + count * ms[rank] if count else 0.0

    for rank in sorted(counts, key=lambda rank: -ms[rank]):
        others = [other for other in counts if other != rank and counts[other] > 1]
        if counts[rank] != 1 or not others:
            continue
        longest = max(ends(other, count) for other, count in counts.items())
        heir = min(others, key=lambda other: (ends(other, counts[other] + 1), other))
        if ends(heir, counts[heir] + 1) <= longest * (1 + LONE_COST):
            counts[rank] = 0
            counts[heir] += 1
    return counts

"""A window in pieces: a rank that is done before the others is dealt more of it, instead of waiting.

What a rank was to do in a window is known beforehand, how long it takes is not. So who deposits early is given another
piece of the same window, and deposits again: no average lies between the two, and its model goes on changing. Whoever
is under way with a piece has, for the others and for its own death, not deposited yet.

Pure: kept by training.py, which deals the pieces; how large they are says the dealer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from flodl_wire.plane_messages import Deposit

MEMORY = 5  # pieces whose way there and back is remembered


class Pieces:
    """Of the ranks of one run. Times are seconds of the coordinator's clock; `count` is of deposits a rank made in the
    window in hand.
    """

    def __init__(self) -> None:
        self.count: dict[int, int] = {}
        self._parts: dict[int, Deposit] = {}  # what a rank that is at a further piece has delivered before
        self._ends: dict[int, float] = {}  # when a rank should be done
        self._sent: dict[int, float] = {}
        self._ways: dict[int, deque[float]] = {}

    def new_window(self) -> None:
        """Its plans are out. Nothing is known of its end before the average that they travel with stands."""
        self._ends, self.count = {}, {}

    def expect(self, ends: dict[int, float]) -> None:
        """When each rank should be done; without those whose speed nobody knows."""
        self._ends = ends

    def handed(self, rank: int, so_far: Deposit, now: float, takes_ms: float) -> None:
        """A rank that has deposited `so_far` is on its way again."""
        self._parts[rank] = so_far
        self._sent[rank] = now
        self._ends[rank] = now + takes_ms / 1e3

    def deposited(self, rank: int, deposit: Deposit, now: float) -> Deposit:
        """All that the rank has done of the window, in one."""
        self.count[rank] = self.count.get(rank, 0) + 1
        before = self._parts.pop(rank, None)
        if before is None:
            return deposit
        way = (now - self._sent[rank]) * 1e3 - deposit.compute_ms - deposit.data_ms
        self._ways.setdefault(rank, deque(maxlen=MEMORY)).append(max(0.0, way))
        return joined(before, deposit)

    def remaining(self, ranks: Iterable[int], now: float) -> dict[int, float]:
        """Milliseconds until each of `ranks` should be done, 0 when it is overdue; without those of whom nothing is
        known.
        """
        return {rank: max(0.0, self._ends[rank] - now) * 1e3 for rank in ranks if rank in self._ends}

    def way(self, rank: int) -> float:
        """Milliseconds that a piece costs the rank besides its work: there and back. 0 before the first."""
        return min(self._ways.get(rank, (0.0,)))

    def lost(self, rank: int) -> None:
        """The rank is dead, and all that it did of the window with it."""
        for kept in (self.count, self._parts, self._ends, self._sent, self._ways):
            kept.pop(rank, None)


def joined(first: Deposit, then: Deposit) -> Deposit:
    """Two deposits of one window. What describes the round before is the first one's: none was made between the two."""
    return msgspec.structs.replace(
        then,
        steps=first.steps + then.steps,
        samples=first.samples + then.samples,
        compute_ms=first.compute_ms + then.compute_ms,
        data_ms=first.data_ms + then.data_ms,
        first_ms=first.first_ms + then.first_ms,
        wait_ms=first.wait_ms + then.wait_ms,
        sync_ms=first.sync_ms,
        loss_sum=first.loss_sum + then.loss_sum,
        loss_samples=first.loss_samples + then.loss_samples,
        not_finite=first.not_finite or then.not_finite,
        divergence=first.divergence,
        late_ms=first.late_ms,
    )

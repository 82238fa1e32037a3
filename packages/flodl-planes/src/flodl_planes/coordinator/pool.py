"""Who does which samples, and the proof that each was merged exactly once.

An epoch is the positions 0 … n-1 of its permutation. They are dealt in whole batches: a *span* is ``(start, count)``
in positions and starts on a multiple of the batch size; only the span that ends at n may end in a short batch. The
*pool* holds what nobody has been given, the *ledger* what an accepted average has taken in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from flodl_wire.faults import Broken

Span = tuple[int, int]


def samples_in(spans: list[Span]) -> int:
    return sum(count for _, count in spans)


def batches_in(spans: list[Span], batch_size: int) -> int:
    """How many batches the spans are cut into: each span by itself, the last batch of one may be short."""
    return sum(-(-count // batch_size) for _, count in spans)


class Intervals:
    """A set of positions as sorted, disjoint, non-touching intervals [start, stop)."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.total = 0

    def add(self, start: int, stop: int) -> bool:
        """Take [start, stop) in; False, and nothing changed, when part of it is in already."""
        at = bisect_left(self._starts, start)
        if (at < len(self._starts) and self._starts[at] < stop) or (at > 0 and self._stops[at - 1] > start):
            return False
        joins_left = at > 0 and self._stops[at - 1] == start
        joins_right = at < len(self._starts) and self._starts[at] == stop
        if joins_left and joins_right:
            self._stops[at - 1] = self._stops.pop(at)
            del self._starts[at]
        elif joins_left:
            self._stops[at - 1] = stop
        elif joins_right:
            self._starts[at] = start
        else:
            self._starts.insert(at, start)
            self._stops.insert(at, stop)
        self.total += stop - start
        return True

    def take_first(self, most: int) -> Span:
        """Remove and return up to `most` positions from the lowest interval; the set must not be empty."""
        start, stop = self._starts[0], self._stops[0]
        if stop - start <= most:
            del self._starts[0], self._stops[0]
            count = stop - start
        else:
            self._starts[0] = start + most
            count = most
        self.total -= count
        return start, count

    def spans(self) -> list[Span]:
        return [(start, stop - start) for start, stop in zip(self._starts, self._stops, strict=True)]


class Pool:
    """What is left to deal of one epoch."""

    def __init__(self, samples: int, batch_size: int, merged: Iterable[Span] = ()) -> None:
        """`merged`: what a run before this one has done of it."""
        self.batch_size = batch_size
        self._free = Intervals()
        at = 0
        for start, count in [*sorted(merged), (samples, 0)]:
            if start > at:
                self._free.add(at, start)
            at = start + count

    @property
    def batches(self) -> int:
        """Batches left to deal."""
        return batches_in(self._free.spans(), self.batch_size)

    def take(self, batches: int) -> list[Span]:
        """Up to `batches` batches from the front, as few spans as possible; fewer when the pool runs dry."""
        spans: list[Span] = []
        while batches > 0 and self._free.total:
            start, count = self._free.take_first(batches * self.batch_size)
            spans.append((start, count))
            batches -= -(-count // self.batch_size)
        return spans

    def put_back(self, spans: list[Span]) -> None:
        """Spans that were dealt and will not be delivered (a rank died, a plan was withdrawn)."""
        for start, count in spans:
            if not self._free.add(start, start + count):
                raise Broken(
                    "ledger",
                    "cannot put samples back",
                    f"positions {start}..{start + count - 1} are in the pool already",
                )


class Ledger:
    """The spans of one epoch that accepted averages have taken in."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.skipped: list[Span] = []  # of the merged ones: done, and left out because they were not finite
        self._merged = Intervals()

    @property
    def merged(self) -> int:
        """Samples merged so far."""
        return self._merged.total

    @property
    def complete(self) -> bool:
        return self._merged.total == self.samples

    def merge(self, spans: list[Span]) -> None:
        """Count `spans`. Raises Broken when one of their samples has been merged before: exactly once is a promise."""
        for start, count in spans:
            if start < 0 or start + count > self.samples or not self._merged.add(start, start + count):
                raise Broken(
                    "ledger",
                    "cannot merge samples twice",
                    f"positions {start}..{start + count - 1} were merged already",
                )

    def spans(self) -> list[Span]:
        return self._merged.spans()

"""Who gets which batches next: in lockstep one each, in cadence as many as fit the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from flodl_planes.coordinator.pool import Pool, Span
from flodl_planes.elche.cadence import Cadence, Measured
from flodl_planes.elche.counts import clamp_total, finish_together, within_spread
from flodl_planes.elche.overshoot import Overshoot

# Ours: batches per rank of the very first window. Nothing is known yet, so everyone gets as many, and the fast wait
# for the slow: 10 batches of a second each would be felt, and 2 after the first (which is never counted) already tell
# 1:2.5 from 1:1.
PROBE_BATCHES = 3
# Ours: an epoch ends in one window while no more than this is left (in full windows), in two equal ones below twice a
# full window. A tail of a few batches costs a whole average and cannot be shared well.
TAIL = 1.5


class Dealer(Protocol):
    """Deals windows of one epoch after another from a `Pool`."""

    def deal(
        self, pool: Pool, ranks: Sequence[int], epoch_batches: int, busy_ms: Mapping[int, float]
    ) -> dict[int, list[Span]]:
        """Spans for each of `ranks` (in order; some may get none). `busy_ms`: what keeps a rank from starting at
        once.
        """

    def report(
        self, measured: Mapping[int, Measured], sync_ms: float, divergence: float | None, rate: float | None = None
    ) -> None:
        """What the ranks measured in the window that has just been averaged; `rate`: their learning rate."""

    def drop(self, rank: int) -> None:
        """The rank is gone."""

    @property
    def anchor_rank(self) -> int | None: ...

    @property
    def ahead(self) -> bool:
        """Whether a window is dealt while the one before it is being done, so that nobody waits for an average."""

    def allowance(self, rank: int) -> int | None:
        """How many batches of such a window may be done before the average is in; None: no limit."""

    def speed(self, rank: int) -> float:
        """Milliseconds per batch; 0 while unknown."""


class Lockstep:
    """cpu_sync: one batch each per average, in rank order, so that averaging equals data-parallel SGD on the same
    batches.
    """

    anchor_rank: int | None = None
    ahead = False

    def deal(
        self, pool: Pool, ranks: Sequence[int], epoch_batches: int, busy_ms: Mapping[int, float]
    ) -> dict[int, list[Span]]:
        return {rank: pool.take(1) for rank in ranks}

    def report(
        self, measured: Mapping[int, Measured], sync_ms: float, divergence: float | None, rate: float | None = None
    ) -> None:
        pass

    def drop(self, rank: int) -> None:
        pass

    def allowance(self, rank: int) -> int | None:
        return None

    def speed(self, rank: int) -> float:
        return 0.0


class Paced:
    """cpu_cadence: El Che's counts; at an epoch's end whatever lets all ranks finish together."""

    ahead = False

    def __init__(self, cadence: Cadence) -> None:
        self.cadence = cadence

    @property
    def anchor_rank(self) -> int | None:
        return self.cadence.anchor_rank

    def allowance(self, rank: int) -> int | None:
        return None

    def speed(self, rank: int) -> float:
        return self.cadence.smoothed(rank) if rank in self.cadence.trust else 0.0

    def report(
        self, measured: Mapping[int, Measured], sync_ms: float, divergence: float | None, rate: float | None = None
    ) -> None:
        self.cadence.report(measured, sync_ms, divergence, rate)

    def drop(self, rank: int) -> None:
        self.cadence.drop(rank)

    def deal(
        self, pool: Pool, ranks: Sequence[int], epoch_batches: int, busy_ms: Mapping[int, float]
    ) -> dict[int, list[Span]]:
        counts = self._counts(pool.batches, ranks, epoch_batches, busy_ms)
        limit = self.cadence.settings.max_batch_diff
        if limit is not None:
            counts = within_spread(counts, limit)  # what is left over is the next window's
        return {rank: pool.take(counts[rank]) for rank in ranks}

    def _counts(
        self, left: int, ranks: Sequence[int], epoch_batches: int, busy_ms: Mapping[int, float]
    ) -> dict[int, int]:
        if self.cadence.phase == "probe":
            return self._probe(left, ranks)
        eased = self.cadence.window(epoch_batches, busy_ms)
        counts = self.cadence.window(epoch_batches, {})
        full = sum(counts[rank] for rank in ranks)
        speeds = self._speeds(ranks)
        if left < 2 * full:
            windows = 1 if left <= TAIL * full else 2
            return finish_together(-(-left // windows), speeds, busy_ms)
        kept = max(busy_ms.values(), default=0.0)
        if kept <= max(counts[rank] * speeds[rank] for rank in ranks):
            return {rank: eased[rank] for rank in ranks}
        # Ours: whoever is kept for longer than a window lasts would make the others wait; they do what fits that time.
        fits = sum(int((kept - busy_ms.get(rank, 0.0)) / speeds[rank]) for rank in ranks)
        return finish_together(min(max(1, fits), left), speeds, busy_ms)

    def _speeds(self, ranks: Sequence[int]) -> dict[int, float]:
        """Milliseconds per batch; a rank we know nothing of is taken for as slow as the anchor."""
        anchor = self.cadence.anchor_rank
        slow = self.cadence.smoothed(anchor) if anchor is not None else 0.0
        return {rank: self.cadence.smoothed(rank) or slow or 1.0 for rank in ranks}

    def _probe(self, left: int, ranks: Sequence[int]) -> dict[int, int]:
        if self.cadence.settings.speed_hint:
            wanted = {rank: self.cadence.counts[rank] for rank in ranks}
        else:
            wanted = dict.fromkeys(ranks, min(self.cadence.anchor, PROBE_BATCHES))
        return clamp_total(wanted, left)


class Free(Paced):
    """cpu_async: the counts of El Che, dealt a window ahead; nobody waits for an average except to bound its age."""

    ahead = True

    def __init__(self, cadence: Cadence) -> None:
        super().__init__(cadence)
        self._overshoot = Overshoot(cadence.settings.max_overshoot)

    def allowance(self, rank: int) -> int | None:
        return self._overshoot.of(rank)

    def report(
        self, measured: Mapping[int, Measured], sync_ms: float, divergence: float | None, rate: float | None = None
    ) -> None:
        super().report(measured, sync_ms, divergence, rate)
        for rank, figures in measured.items():
            if figures.late_ms > 0:
                self._overshoot.report(rank, figures.late_ms, self.speed(rank))

    def drop(self, rank: int) -> None:
        super().drop(rank)
        self._overshoot.drop(rank)

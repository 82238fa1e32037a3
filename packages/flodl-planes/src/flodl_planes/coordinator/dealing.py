"""Who gets which batches next: in lockstep one each, in cadence as many as fit the window."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from flodl_planes.coordinator.pool import Pool, Span
from flodl_planes.elche.anchor import presumed
from flodl_planes.elche.cadence import Cadence, Measured
from flodl_planes.elche.counts import clamp_total, finish_together, half_away, share_out, within_spread
from flodl_planes.elche.overshoot import Overshoot
from flodl_planes.elche.settings import MAX_SPEED_RATIO, read_settings
from flodl_wire.plane_messages import Gpu, Terms

# Ours: batches per rank of the very first window. Nothing is known yet, so everyone gets as many, and the fast wait
# for the slow: 10 batches of a second each would be felt, and 2 after the first (which is never counted) already tell
# 1:2.5 from 1:1.
PROBE_BATCHES = 3
# Ours: an epoch ends in one window while no more than this is left (in full windows), in two equal ones below twice a
# full window. A tail of a few batches costs a whole average and cannot be shared well.
TAIL = 1.5
# Ours: of a window so much is held back, and dealt in pieces to whoever is done first, as speeds lately differed from
# what they were taken for (twice that, at most half): everybody waits for the last one. Half of what a rank should
# still get at a time. Worth while where the difference is a good part of the slowest rank's batch, which is the grain
# that pieces have, and where a window is long against the way of a piece, there and back.
HELD_BACK, MOST_HELD_BACK = 2.0, 0.5
UNKNOWN_ERROR = 0.25  # of speeds that come from a rank's first batches, which lie
GRAIN, WAYS = 0.5, 100.0
WORTH = 2.0  # work in a piece, in times of its way
ERRORS = 5  # windows: as long as speeds are trusted


class Dealer(Protocol):
    """Deals windows of one epoch after another from a `Pool`."""

    def deal(
        self, pool: Pool, ranks: Sequence[int], epoch_batches: int, busy_ms: Mapping[int, float]
    ) -> dict[int, list[Span]]:
        """Spans for each of `ranks` (in order; some may get none). `busy_ms`: what keeps a rank from starting at
        once.
        """

    def further(
        self,
        pool: Pool,
        done: Mapping[int, int],
        seen_ms: Mapping[int, float],
        under_way: Mapping[int, float | None],
        ways_ms: Mapping[int, float],
    ) -> dict[int, list[Span]]:
        """Further pieces of the window in hand for some of the ranks in `done`, who have done so many batches of it,
        each in `seen_ms`; a piece costs them `ways_ms` besides its work. `under_way`: milliseconds until the others
        should be done, None where nobody knows.
        """

    @property
    def holds_back(self) -> bool:
        """Whether what the last `deal` left is for further pieces of its window, the epoch's last."""

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
    """cpu_sync: one step's batches each per average, in rank order, so that averaging equals data-parallel SGD on the
    same batches.
    """

    anchor_rank: int | None = None
    ahead = False
    holds_back = False

    def __init__(self, accumulate: int = 1) -> None:
        self._accumulate = accumulate

    def deal(
        self, pool: Pool, ranks: Sequence[int], epoch_batches: int, busy_ms: Mapping[int, float]
    ) -> dict[int, list[Span]]:
        return {rank: pool.take(self._accumulate) for rank in ranks}

    def further(
        self,
        pool: Pool,
        done: Mapping[int, int],
        seen_ms: Mapping[int, float],
        under_way: Mapping[int, float | None],
        ways_ms: Mapping[int, float],
    ) -> dict[int, list[Span]]:
        return {}

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
        self._held = 0  # batches of the window in hand that are dealt in further pieces
        self._last = False  # the window in hand is the epoch's last
        settings = cadence.settings
        self._progressive = settings.progressive and settings.max_batch_diff is None
        self._ways: dict[int, float] = {}  # ms that a piece lately cost each rank besides its work
        self._errors: deque[float] = deque(maxlen=ERRORS)  # how far ranks' speeds, against what was known, lay apart

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
        errors = [
            figures.delivered / self.speed(rank)
            for rank, figures in measured.items()
            if figures.delivered is not None and self.speed(rank) > 0
        ]
        if len(errors) > 1:
            self._errors.append(max(errors) - min(errors))
        self.cadence.report(measured, sync_ms, divergence, rate)

    def drop(self, rank: int) -> None:
        self.cadence.drop(rank)
        self._ways.pop(rank, None)

    def deal(
        self, pool: Pool, ranks: Sequence[int], epoch_batches: int, busy_ms: Mapping[int, float]
    ) -> dict[int, list[Span]]:
        self._held, self._last = 0, False
        counts = self._counts(pool.batches, ranks, epoch_batches, busy_ms)
        step = self.cadence.settings.accumulate
        if sum(counts.values()) < pool.batches:
            counts = {rank: -(-count // step) * step for rank, count in counts.items()}
        limit = self.cadence.settings.max_batch_diff
        if limit is not None:
            counts = within_spread(counts, limit - limit % step)  # what is left over is the next window's
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
            self._last = windows == 1
            return self._in_pieces(-(-left // windows), speeds, busy_ms)
        kept = max(busy_ms.values(), default=0.0)
        if kept <= max(counts[rank] * speeds[rank] for rank in ranks):
            if self.ahead:
                return {rank: eased[rank] for rank in ranks}
            return self._in_pieces(sum(eased[rank] for rank in ranks), speeds, busy_ms)
        # Ours: whoever is kept for longer than a window lasts would make the others wait; they do what fits that time.
        fits = sum(int((kept - busy_ms.get(rank, 0.0)) / speeds[rank]) for rank in ranks)
        return finish_together(min(max(1, fits), left), speeds, busy_ms)

    def _in_pieces(self, batches: int, speeds: Mapping[int, float], busy_ms: Mapping[int, float]) -> dict[int, int]:
        """A window of `batches`, of which some are held back unless ways are long or ranks must keep in step."""
        window_ms = batches / sum(1 / ms for ms in speeds.values())
        error = statistics.median(self._errors) if self._errors else UNKNOWN_ERROR
        longest_way = max(self._ways.values(), default=0.0)
        fine = error * window_ms >= GRAIN * max(speeds.values()) and window_ms >= WAYS * longest_way
        if self._progressive and fine and (self._last or not self.ahead):
            self._held = int(batches * min(MOST_HELD_BACK, HELD_BACK * error))
        return finish_together(batches - self._held, speeds, busy_ms)

    @property
    def holds_back(self) -> bool:
        return self._last and self._held > 0

    def further(
        self,
        pool: Pool,
        done: Mapping[int, int],
        seen_ms: Mapping[int, float],
        under_way: Mapping[int, float | None],
        ways_ms: Mapping[int, float],
    ) -> dict[int, list[Span]]:
        self._ways.update(ways_ms)
        if not self._progressive:
            return {}
        if self.cadence.phase == "probe":
            first = None in under_way.values()  # somebody is still at its first batches: the others do not stand about
            counts = {rank: 1 for rank, batches in done.items() if first and batches < self.cadence.anchor}
        else:
            left = pool.batches if self._last else min(self._held, pool.batches)
            speeds = self._speeds([*done, *under_way]) | dict(seen_ms)
            counts = _pieces(left, speeds, under_way, ways_ms)
        taken = {rank: pool.take(count) for rank, count in counts.items()}
        self._held = max(0, self._held - sum(counts.values()))
        return {rank: spans for rank, spans in taken.items() if spans}

    def _speeds(self, ranks: Sequence[int]) -> dict[int, float]:
        """Milliseconds per batch; a rank we know nothing of is taken for as slow as the anchor."""
        anchor = self.cadence.anchor_rank
        slow = self.cadence.smoothed(anchor) if anchor is not None else 0.0
        return {rank: self.cadence.smoothed(rank) or slow or 1.0 for rank in ranks}

    def _probe(self, left: int, ranks: Sequence[int]) -> dict[int, int]:
        ratios = self.cadence.settings.partition_ratios
        few = min(self.cadence.anchor, PROBE_BATCHES)
        if self.cadence.settings.speed_hint:
            wanted = {rank: self.cadence.counts[rank] for rank in ranks}
        elif ratios:
            least = min(ratios[rank] for rank in ranks)
            wanted = {rank: half_away(few * min(ratios[rank] / least, MAX_SPEED_RATIO)) for rank in ranks}
        else:
            wanted = dict.fromkeys(ranks, few)
        return clamp_total(wanted, left)


def _pieces(
    left: int, speeds: Mapping[int, float], under_way: Mapping[int, float | None], ways_ms: Mapping[int, float]
) -> dict[int, int]:
    """Of `left` batches those that the ranks in `ways_ms`, who are done, should begin now."""
    starts = {rank: late or 0.0 for rank, late in under_way.items()} | dict(ways_ms)
    counts = {}
    for rank, share in share_out(left, speeds, starts).items():
        piece = share if share <= 2 else -(-share // 2)
        if piece and rank in ways_ms and (not under_way or piece * speeds[rank] >= WORTH * ways_ms[rank]):
            counts[rank] = piece
    return counts


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


def dealer_for(mode: str, terms: Terms, gpus: Mapping[int, Gpu | None]) -> Dealer:
    """The dealer of a mode for the ranks in `gpus`. Raises Refused for cadence settings that cannot be used."""
    settings = read_settings(terms.elche, len(gpus))
    if mode.endswith("_sync"):
        return Lockstep(settings.accumulate)
    cadence = Cadence(gpus, settings, presumed(gpus))
    return Free(cadence) if mode == "cpu_async" else Paced(cadence)

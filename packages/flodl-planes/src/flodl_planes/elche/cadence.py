"""El Che: the slowest rank sets the pace, nobody waits for it, everybody arrives together.

One `report` per window with what each rank measured; `window` says how many batches each rank does next. Phases:
*probe* (nothing known) → *warmup* (from the first report; the anchor is pinned, since cold starts lie) → *stable* (5
reports; the anchor may move) → *mature* (20).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flodl_planes.elche import counts as count_rules
from flodl_planes.elche import growth
from flodl_planes.elche.anchor import elect
from flodl_planes.elche.guards import NudgeDown, Stable, SuppressGrowth, Verdict, guard
from flodl_planes.elche.meta import MetaController
from flodl_planes.elche.settings import (
    COSTS,
    COUNT_HYSTERESIS,
    GROWTH_REARM,
    MATURE_AFTER,
    STABLE_AFTER,
    TRUST_SAMPLES,
    Settings,
)
from flodl_planes.elche.trust import TrustWindow

PHASES = ("probe", "warmup", "stable", "mature")


@dataclass(frozen=True)
class Measured:
    """One rank's window: batches it did, their compute time, all of their time (data too), and the first batch's
    share of that.
    """

    batches: int
    compute_ms: float
    total_ms: float
    first_ms: float
    late_ms: float = 0.0  # cpu_async: how long after its deposit the average before this window came in
    pieces: int = 1  # that it was dealt in; `first_ms` is of the first batches of all

    @property
    def delivered(self) -> float | None:
        """Milliseconds per batch as delivered, the window's first batch left out (it also pays for filling the
        pipe).
        """
        if self.batches <= self.pieces or self.total_ms <= self.first_ms:
            return None
        return (self.total_ms - self.first_ms) / (self.batches - self.pieces)

    @property
    def fill_ms(self) -> float:
        return max(0.0, self.first_ms - self.pieces * self.delivered) if self.delivered is not None else 0.0


class Cadence:
    """The controller's state. `anchor` is in batches, `anchor_rank` the rank that does that many. `presumed`: who that
    is at first where the settings name nobody (anchor.py); without it the first report elects.
    """

    def __init__(self, ranks: Iterable[int], settings: Settings, presumed: int | None = None) -> None:
        self.settings = settings
        self.anchor = settings.anchor
        self.trust: dict[int, TrustWindow] = {rank: TrustWindow() for rank in ranks}
        self.anchor_rank = self._named_anchor()
        if self.anchor_rank is None:
            self.anchor_rank = presumed
        self.counts: dict[int, int] = dict.fromkeys(self.trust, self.anchor)
        self.calibrations = 0
        self.proposed: int | None = None
        self.cap_binding = False
        self._growth_off = False
        self._consecutive_stable = 0
        self._guard = guard(settings.guard, settings.divergence_threshold)
        self._meta = MetaController() if settings.meta_controller else None
        self._costs: deque[float] = deque(maxlen=COSTS)
        if settings.speed_hint:
            slow, ratio = settings.speed_hint
            hinted = max(1, count_rules.half_away(self.anchor * ratio))
            self.counts = {rank: self.anchor if rank == slow else hinted for rank in self.trust}

    def _named_anchor(self) -> int | None:
        if self.settings.speed_hint:
            return self.settings.speed_hint[0]
        ratios = self.settings.partition_ratios
        return ratios.index(min(ratios)) if ratios else None

    @property
    def phase(self) -> str:
        if self.calibrations == 0:
            return "probe"
        if self.calibrations < STABLE_AFTER:
            return "warmup"
        return "stable" if self.calibrations < MATURE_AFTER else "mature"

    def smoothed(self, rank: int) -> float:
        """Milliseconds per batch, 0 while unknown."""
        return self.trust[rank].smoothed

    def drop(self, rank: int) -> None:
        """The rank is gone; when it was the anchor the slowest of those left takes over at once."""
        self.trust.pop(rank, None)
        self.counts.pop(rank, None)
        if rank == self.anchor_rank:
            self.anchor_rank = self._elect(None)
            self._retarget(moved=True)

    def window(self, epoch_batches: int, busy_ms: Mapping[int, float]) -> dict[int, int]:
        """Batches per rank for a full window in an epoch of `epoch_batches`; less for a rank that is first kept
        `busy_ms` with a callback.

        The slack is taken from this window only and leaves `counts` alone: below the hysteresis it would otherwise
        stay for good.
        """
        eased = {
            rank: count_rules.less_slack(n, busy_ms.get(rank, 0.0), self.smoothed(rank))
            for rank, n in self.counts.items()
        }
        capped, self.cap_binding = count_rules.cap_to_epoch(eased, epoch_batches)
        return capped

    def report(
        self,
        measured: Mapping[int, Measured],
        sync_ms: float,
        divergence: float | None = None,
        rate: float | None = None,
    ) -> None:
        """One window's figures. Ranks without batches count as missing; `sync_ms` is what its average cost the rank at
        the end of the slowest road, `rate` the learning rate.
        """
        self._push(measured)
        if self.anchor_rank is None or self.phase in ("stable", "mature"):
            self.anchor_rank = self._elect(self.anchor_rank)
        pinned = self.trust.get(self.anchor_rank) if self.anchor_rank is not None else None
        if pinned is not None and pinned.smoothed == 0 and pinned.misses >= TRUST_SAMPLES:
            heir = self._elect(None)  # without this a silent anchor would freeze the warm-up
            self.anchor_rank = self.anchor_rank if heir is None else heir
        if self.anchor_rank is None or self.smoothed(self.anchor_rank) <= 0:
            return
        first = self.calibrations == 0
        self.calibrations += 1
        if not first:  # the first average also carries the cost of starting up, which looks like pressure
            self._propose(measured, sync_ms)
        self._retarget(first=first)
        steps = max((m.batches for m in measured.values()), default=0)
        usable = divergence is not None and math.isfinite(divergence)
        phase = self.phase
        verdict = self._guard.read(divergence, steps) if usable and divergence is not None else Stable()
        self.judge(verdict)
        nudge = self._meta.read(phase, self.anchor, rate, verdict) if self._meta else None
        if nudge:
            self.judge(nudge)

    def retarget(self) -> None:
        """Make the counts follow what has been put in place from outside (a snapshot)."""
        self._retarget(first=True)

    def judge(self, verdict: Verdict) -> None:
        """What the convergence guard says about this window."""
        if isinstance(verdict, Stable):
            self._consecutive_stable += 1
            if self._consecutive_stable >= GROWTH_REARM:
                self._growth_off = False
            if self.proposed is not None:
                self.anchor, self.proposed = self.proposed, None
                self._retarget(moved=True)
            elif self.settings.relax_up:
                self._relax_up()
        elif isinstance(verdict, SuppressGrowth):
            self.proposed = None
            self._consecutive_stable = 0
            self._growth_off = True
        elif isinstance(verdict, NudgeDown) and math.isfinite(verdict.factor):
            self.proposed = None  # first: an older proposal must not overwrite the nudge at the next stable verdict
            self._growth_off = True
            self._consecutive_stable = 0
            factor = min(max(verdict.factor, 0.1), 1.0)
            self.anchor = max(1, min(self.anchor, math.ceil(self.anchor * factor)))
            self._retarget(moved=True)

    def _push(self, measured: Mapping[int, Measured]) -> None:
        moved = {rank: m for rank, m in measured.items() if rank in self.trust and m.batches > 0}
        if not moved:
            return
        # One scale for all: mixing compute-only and delivered figures turned shares upside down in the original.
        delivered = all(m.delivered is not None for m in moved.values())
        for rank, trust in self.trust.items():
            m = moved.get(rank)
            if m is None:
                trust.miss()
            else:
                trust.push(m.delivered if delivered and m.delivered is not None else m.compute_ms / m.batches)

    def _elect(self, current: int | None) -> int | None:
        return elect({rank: trust.smoothed for rank, trust in self.trust.items()}, current)

    def _propose(self, measured: Mapping[int, Measured], sync_ms: float) -> None:
        rank = self.anchor_rank
        self._costs.append(sync_ms)
        if rank is None or self._growth_off or self.cap_binding:
            return
        fill = measured[rank].fill_ms if rank in measured else 0.0
        cost = statistics.median_low(self._costs)
        share = growth.overhead(self.anchor, self.smoothed(rank), cost, fill)
        self.proposed = growth.proposal(self.settings, self.anchor, share, warmup=self.phase == "warmup")
        if self.proposed is not None:
            largest = growth.wanted(self.settings, self.smoothed(rank), cost, fill)
            self.proposed = growth.leap(self.settings, self.proposed, largest) or self.proposed

    def _retarget(self, *, first: bool = False, moved: bool = False) -> None:
        """Bring the counts up to date; a small change waits, unless nothing was known (`first`) or the anchor
        `moved`.
        """
        anchor_ms = self.smoothed(self.anchor_rank) if self.anchor_rank is not None else 0.0
        if anchor_ms <= 0:
            return
        for rank, trust in self.trust.items():
            now = self.counts[rank]
            wanted = count_rules.target(self.anchor, anchor_ms, trust.smoothed)
            if not (first or moved or abs(wanted - now) > COUNT_HYSTERESIS * now):
                continue
            limit = self.settings.max_batch_diff
            if limit and not first:
                wanted = max(1, min(max(wanted, now - limit), now + limit))
            self.counts[rank] = wanted

    def _relax_up(self) -> None:
        speeds = [trust.smoothed for trust in self.trust.values() if trust.smoothed > 0]
        limit = self.settings.max_batch_diff
        if self.anchor >= self.settings.ceiling or not speeds:
            return
        larger = self.anchor + 1
        spread = count_rules.half_away(larger * max(speeds) / min(speeds)) - larger
        if limit is None or spread <= limit:
            self.anchor = larger
            self._retarget(moved=True)

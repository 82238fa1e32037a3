"""The run in figures: who was busy, who waited, how well the work was shared. Everything is fed with merged deposits
only.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

from flodl_wire.plane_messages import Deposit
from flodl_wire.result import EpochResult, RankResult, RunResult
from flodl_wire.specs import RankPlace

RECENT_S = 5.0  # live rates look so far back


@dataclass
class Work:
    """What one rank did: in an epoch, or in the whole run."""

    batches: int = 0
    samples: int = 0
    busy_ms: float = 0.0
    wait_ms: float = 0.0
    sync_ms: float = 0.0

    def add(self, batches: int, deposit: Deposit) -> None:
        self.batches += batches
        self.samples += deposit.samples
        self.busy_ms += deposit.compute_ms + deposit.data_ms
        if deposit.window > 0:  # the first window's wait is the others' loading, before the run's clock starts
            self.wait_ms += deposit.wait_ms
            self.sync_ms += deposit.sync_ms

    @property
    def rate(self) -> float:
        """Samples per second of busy time."""
        return self.samples / self.busy_ms * 1e3 if self.busy_ms > 0 else 0.0


@dataclass
class Tally:
    """Work of all ranks over one stretch of time."""

    began: float
    ended: float = 0.0
    work: dict[int, Work] = field(default_factory=dict)
    loss_sum: float = 0.0
    loss_samples: int = 0

    def add(self, rank: int, batches: int, deposit: Deposit) -> None:
        self.work.setdefault(rank, Work()).add(batches, deposit)
        self.loss_sum += deposit.loss_sum
        self.loss_samples += deposit.loss_samples

    @property
    def wall_s(self) -> float:
        return max(0.0, self.ended - self.began)

    @property
    def samples(self) -> int:
        return sum(work.samples for work in self.work.values())

    @property
    def rate(self) -> float:
        return self.samples / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def loss(self) -> float | None:
        return self.loss_sum / self.loss_samples if self.loss_samples and math.isfinite(self.loss_sum) else None

    @property
    def balance(self) -> float | None:
        """(samples / wall_s) / Σ_r (samples_r / busy_s_r): 1 when nobody ever waits."""
        ideal = sum(work.rate for work in self.work.values())
        return self.rate / ideal if ideal > 0 and self.wall_s > 0 else None

    @property
    def sync_share(self) -> float | None:
        """The share of the ranks' time, busy and waiting, that averaging took."""
        whole = sum(work.busy_ms + work.wait_ms for work in self.work.values())
        return sum(work.sync_ms for work in self.work.values()) / whole if whole > 0 else None


@dataclass
class Carried:
    """What a run before this one had done of the epoch that it was interrupted in."""

    samples: int = 0
    loss_sum: float = 0.0
    loss_samples: int = 0
    wall_s: float = 0.0


class Accounts:
    """The whole run, its epochs (those of the run it goes on from too), and the last seconds."""

    def __init__(self, places: list[RankPlace]) -> None:
        self.places = places
        self.run = Tally(0.0)
        self.epoch = Tally(0.0)
        self.epochs: list[EpochResult] = []
        self.carried = Carried()
        self.undone = 0  # samples that were left out of every average
        self.resumed = ""  # the checkpoint that it went on from
        self.rounds = 0
        self._round_ms: deque[float] = deque(maxlen=10_000)
        self.last: dict[int, tuple[int, Deposit]] = {}  # of each rank the last window that it worked in
        self.round: dict[int, tuple[int, Deposit]] = {}  # what the last round took in
        self._recent: deque[tuple[float, int]] = deque()

    def begin(self, now: float) -> None:
        """The first batches are out."""
        self.run = Tally(now, now)
        self.epoch = Tally(now, now)
        self._recent.append((now, 0))

    def merged(self, now: float, took: dict[int, tuple[int, Deposit]]) -> None:
        """A round is complete: per rank the batches and the deposit it took in."""
        self.round = took
        for rank, (batches, deposit) in took.items():
            self.run.add(rank, batches, deposit)
            self.epoch.add(rank, batches, deposit)
            if deposit.samples:
                self.last[rank] = (batches, deposit)
        self.run.ended = self.epoch.ended = now
        self._recent.append((now, sum(deposit.samples for _, deposit in took.values())))
        while len(self._recent) > 2 and now - self._recent[0][0] > RECENT_S:
            self._recent.popleft()

    def averaged(self, ms: float) -> None:
        """One average, and the milliseconds it cost the ranks (0: not measured)."""
        self.rounds += 1
        if ms > 0:
            self._round_ms.append(ms)

    def end_epoch(self, epoch: int) -> Tally:
        """Close the epoch's tally and begin the next one where it ended."""
        done, before = self.epoch, self.carried
        loss_sum, loss_samples = done.loss_sum + before.loss_sum, done.loss_samples + before.loss_samples
        loss = loss_sum / loss_samples if loss_samples and math.isfinite(loss_sum) else None
        wall_s, samples = done.wall_s + before.wall_s, done.samples + before.samples
        self.epochs.append(EpochResult(epoch, loss, round(wall_s, 6), samples))
        self.carried = Carried()
        self.epoch = Tally(done.ended, done.ended)
        return done

    def applied(self, rank: int, sync_ms: float, now: float) -> None:
        """The run's last average, which no deposit tells of, stands in `rank`."""
        self.run.ended = max(self.run.ended, now)
        work = self.run.work.get(rank)
        if work is not None:  # else it only got the model that it was to begin with
            work.wait_ms += sync_ms
            work.sync_ms += sync_ms

    @property
    def recent_rate(self) -> float:
        """Samples per second over the last seconds."""
        if len(self._recent) < 2:
            return 0.0
        span = self._recent[-1][0] - self._recent[0][0]
        return sum(samples for _, samples in list(self._recent)[1:]) / span if span > 0 else 0.0

    def rank_rate(self, rank: int) -> float:
        """Samples per busy second in the rank's last window."""
        _, deposit = self.last.get(rank, (0, None))
        busy = deposit.compute_ms + deposit.data_ms if deposit else 0.0
        return deposit.samples / busy * 1e3 if deposit and busy > 0 else 0.0

    def result(self, run: str, mode: str, *, verdict: str = "done", degraded: bool = False, why: str = "") -> RunResult:
        tally = self.run
        ranks = []
        for place in self.places:
            work = tally.work.get(place.rank, Work())
            ranks.append(
                RankResult(
                    place.rank,
                    place.host,
                    place.device,
                    work.batches,
                    work.samples,
                    round(work.busy_ms / 1e3, 6),
                    round(work.wait_ms / 1e3, 6),
                    round(work.rate, 3),
                )
            )
        return RunResult(
            run=run,
            mode=mode,
            world_size=len(self.places),
            verdict=verdict,
            degraded=degraded,
            why=why,
            wall_s=round(tally.wall_s, 6),
            samples=tally.samples,
            samples_per_s=round(tally.rate, 3),
            balance=None if tally.balance is None else round(tally.balance, 4),
            sync_share=None if tally.sync_share is None else round(tally.sync_share, 4),
            rounds=self.rounds,
            round_ms_median=round(statistics.median(self._round_ms), 3) if self._round_ms else None,
            ranks=ranks,
            epochs=list(self.epochs),
            undone=self.undone,
            resumed=self.resumed,
        )

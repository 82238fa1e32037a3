"""What a run tells while it goes on: epochs, rounds, losses, live numbers; each as often as somebody can use it."""

from __future__ import annotations

from flodl_planes.coordinator import narration
from flodl_planes.coordinator.accounting import Tally
from flodl_planes.coordinator.full_speed import FullSpeed
from flodl_planes.coordinator.hub_events import AppendMetrics, HubOrder, Tell
from flodl_planes.coordinator.pool import Span
from flodl_planes.coordinator.rounds import EpochMerged
from flodl_planes.coordinator.timeline import Clockwork
from flodl_planes.coordinator.training import Training
from flodl_wire.faults import Broken, Fault
from flodl_wire.hub_messages import Notice
from flodl_wire.plane_messages import Deposit
from flodl_wire.result import EpochResult

PROGRESS_EVERY_S = 0.45  # about twice a second: the hub's tick is half a second
ROUND_EVERY_S = 1.0


class Reports:
    """`began_at`: the moment that `t` in metrics.jsonl counts from; `formed_at`: when the ranks were started."""

    def __init__(self, training: Training, began_at: float, formed_at: float) -> None:
        self._training = training
        self._accounts = training.accounts
        self._began_at = began_at
        self._merged: list[tuple[EpochResult, list[Span], Tally]] = []  # epochs not yet reported
        self._evaluations: dict[int, dict[str, float]] = {}  # may come before the round is known to be decided
        self._warned: set[int] = set()
        self._progress_at = self._round_at = float("-inf")
        self._clockwork = Clockwork(self._accounts, began_at)
        self._full_speed = FullSpeed(training, formed_at, began_at)

    def merged(self, done: EpochMerged) -> None:
        """An epoch is whole; it is reported once its evaluation is in."""
        tally = self._accounts.end_epoch(done.epoch)
        self._merged.append((self._accounts.epochs[-1], done.spans, tally))

    def unevaluated(self, result: EpochResult, samples: int, now: float) -> None:
        """The run before did not live to see that epoch evaluated: it is reported in this one."""
        self._merged.append((result, [(0, samples)], Tally(now, now)))

    def evaluated(self, epoch: int, metrics: dict[str, float]) -> None:
        self._evaluations[epoch] = metrics

    def epochs(self, now: float) -> list[HubOrder]:
        """The epochs that wait for nothing more, oldest first."""
        orders: list[HubOrder] = []
        while self._merged and self._merged[0][0].epoch != self._training.callback.epoch:
            result, spans, tally = self._merged.pop(0)
            result.eval = self._evaluations.pop(result.epoch, None)
            line = narration.epoch_line(result, self._training.terms.epochs, tally)
            orders.append(Tell(narration.epoch_done(result, tally, line)))
            orders.append(AppendMetrics(narration.epoch_row(result, spans, tally, now - self._began_at)))
        return orders

    def round(self, now: float) -> list[HubOrder]:
        """A round is done: a row of the timeline and a line of metrics, each now and then."""
        orders = [*self._timeline(now), *self._full_speed.round(now)]
        if now - self._round_at >= ROUND_EVERY_S:
            self._round_at = now
            orders.append(AppendMetrics(narration.round_row(self._training, self._accounts, now - self._began_at)))
        return orders

    def progress(self, now: float, *, last: bool = False) -> list[HubOrder]:
        """The live numbers when they are due; the `last` ones in any case."""
        if not last and now - self._progress_at < PROGRESS_EVERY_S:
            return []
        self._progress_at = now
        rest = self._timeline(now, last=True) if last else []
        return [*rest, Tell(narration.progress(self._training, self._accounts, now))]

    def _timeline(self, now: float, *, last: bool = False) -> list[HubOrder]:
        row = self._clockwork.row(now, last=last)
        return [Tell(row)] if row else []

    def lost(self, rank: int, where: str, why: str, returned: int, now: float) -> list[HubOrder]:
        """A rank is dead and the run goes on; `returned` of its samples are dealt again."""
        cohort = self._training.cohort
        self._full_speed.lost(rank, now)
        given = f"; {returned:,} samples of it go to the others" if returned else ""
        text = f"{where} is lost ({why}){given}; {len(cohort.living)} of {cohort.size} ranks go on"
        at = round(now - self._began_at, 3)
        return [
            Tell(Notice(text)),
            AppendMetrics({"kind": "lost", "t": at, "rank": rank, "why": why, "returned": returned}),
        ]

    def left_out(self, rank: int, where: str, tensor: str, samples: int, now: float) -> list[HubOrder]:
        """A rank's work of a window is not finite, and no average will hold it."""
        text = f"the model of {where} is not finite (first {tensor}): {samples:,} samples are left out"
        at = round(now - self._began_at, 3)
        row = {"kind": "left_out", "t": at, "rank": rank, "samples": samples, "tensor": tensor}
        return [Tell(Notice(text)), AppendMetrics(row)]

    def not_finite(self, rank: int, window: int) -> list[HubOrder]:
        """A rank's loss was no number: said once per rank."""
        if rank in self._warned:
            return []
        self._warned.add(rank)
        return [Tell(Notice(f"rank {rank}: a loss is not finite (window {window})"))]


def not_finite(where: str, deposit: Deposit) -> Fault:
    """A rank's model holds infinities or no numbers, and the run is to end for it."""
    return Broken(
        "not-finite",
        f"cannot go on training: the model of {where} is not finite",
        f"first {deposit.poisoned}, in window {deposit.window}",
        "lower the learning rate, clip the gradients (clip_norm=1.0), or leave such work out (nan='skip')",
    )

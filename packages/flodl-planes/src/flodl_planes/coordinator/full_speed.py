"""How long the world took until everybody worked at their own pace: since it formed, and again since a rank was lost.

Full speed is reached with the first round that holds work of every living rank once their speeds are known, so that
nobody does more or less than their share.
"""

from __future__ import annotations

from flodl_planes.coordinator.hub_events import AppendMetrics, HubOrder, Tell
from flodl_planes.coordinator.training import Training
from flodl_wire.hub_messages import Notice


class FullSpeed:
    """Counts from `formed_at`; `t` in metrics.jsonl counts from `began_at`."""

    def __init__(self, training: Training, formed_at: float, began_at: float) -> None:
        self._training = training
        self._began_at = began_at
        self._pending: tuple[str, float] | None = ("the world formed", formed_at)

    def lost(self, rank: int, now: float) -> None:
        """A rank is gone, and its work goes to the others."""
        self._pending = (f"rank {rank} was lost", now)

    def round(self, now: float) -> list[HubOrder]:
        """A round is decided. One row when that makes it full speed; people hear of it where they waited for it."""
        training = self._training
        cadence = getattr(training.dealer, "cadence", None)
        measured = cadence is None or cadence.phase != "probe"
        if self._pending is None or not measured or not training.worked >= set(training.cohort.living):
            return []
        (what, since), self._pending = self._pending, None
        took = round(now - since, 3)
        row = {"kind": "full_speed", "t": round(now - self._began_at, 3), "after": what, "took_s": took}
        awaited = training.accounts.resumed or len(training.cohort.living) < training.cohort.size
        said: list[HubOrder] = [Tell(Notice(f"full speed {took:.1f} s after {what}"))] if awaited else []
        return [*said, AppendMetrics(row)]

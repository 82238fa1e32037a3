"""Ranks that stand still: shown in any case, and ended where the script says how long is too long.

A rank is dead by its process' end alone, never by its silence: a debugger, a compiler or a slow disk may hold it for as
long as they like. `stall_timeout` says otherwise. The relay ends the process, and what follows is a death like another.
"""

from __future__ import annotations

from collections.abc import Collection

from flodl_planes.coordinator import narration
from flodl_planes.coordinator.hub_events import Expel, HubOrder, Tell
from flodl_planes.coordinator.training import Training
from flodl_wire.hub_messages import Expelled


class Stalls:
    """Who was to be ended for it, and since when they had stood still."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._tried: dict[int, float] = {}

    def expel(self, training: Training, waited_for: list[int], since: float, now: float) -> list[HubOrder]:
        """End who of `waited_for` has stood still for `stall_timeout` since then; and again after as long, for it may
        have been another's fault.
        """
        limit = training.terms.stall_timeout
        if limit is None or now - since < limit:
            return []
        orders: list[HubOrder] = []
        for rank in waited_for:
            if now - max(since, self._tried.get(rank, 0.0)) >= limit:
                self._tried[rank] = now
                self._since[rank] = since
                orders += [Tell(Expelled(rank, now - since)), Expel(rank)]
        return orders

    def why(self, rank: int, why: str, now: float) -> str:
        """Why a rank is dead, if it was for this."""
        if rank not in self._since:
            return why
        return f"it stood still for {now - self._since[rank]:.0f} s and was ended (stall_timeout)"


def waited_for(training: Training, living: list[int], phase: str, applied: Collection[int], now: float) -> list[int]:
    """Ranks that the run cannot go on without, or cannot end without. `applied`: who has the last average."""
    if phase == "training":
        limit = training.terms.stall_timeout or 0.0
        return [rank for rank in living if narration.stalled(training, rank, now, limit)]
    busy = training.plans.keys() - training.deposits.keys()
    return [rank for rank in living if phase == "leaving" or rank in busy or rank not in applied]

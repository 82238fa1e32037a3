"""Ranks that stand still: shown in any case, and ended where the script says how long is too long.

A rank is dead by its process' end alone, never by its silence: a debugger, a compiler or a slow disk may hold it for as
long as they like. `stall_timeout` says otherwise. The relay ends the process, and what follows is a death like another.
Where ranks wait for one another the relay spares those who only wait: so it counts when the relay says that it does it.
"""

from __future__ import annotations

from collections.abc import Collection

from flodl_planes.coordinator import narration
from flodl_planes.coordinator.hub_events import Expel, HubOrder, Tell
from flodl_planes.coordinator.training import Training
from flodl_wire.hub_messages import Expelled


class Stalls:
    """Who was to be ended for it, and when; since when they had stood still, and for how long when they were."""

    def __init__(self) -> None:
        self._tried: dict[int, float] = {}
        self._since: dict[int, float] = {}
        self._stood_s: dict[int, float] = {}

    def expel(self, training: Training, awaited: list[int], now: float) -> list[HubOrder]:
        """End who of `awaited` has stood still for `stall_timeout` since their plans were issued; and again after as
        long, for it may have been another's fault.
        """
        limit, since = training.terms.stall_timeout, training.issued_at
        if limit is None or now - since < limit:
            return []
        orders: list[HubOrder] = []
        for rank in awaited:
            if now - max(since, self._tried.get(rank, 0.0)) >= limit:
                self._tried[rank], self._since[rank] = now, since
                orders.append(Expel(rank))
        return orders

    def ending(self, rank: int, now: float) -> list[HubOrder]:
        """Its relay is about to do it."""
        self._stood_s[rank] = now - self._since.get(rank, now)
        return [Tell(Expelled(rank, self._stood_s[rank]))]

    def why(self, rank: int, why: str) -> str:
        """Why a rank is dead: `why`, unless it was for this; of that the launcher may not have heard in time."""
        if rank not in self._stood_s:
            return why
        return f"it stood still for {self._stood_s[rank]:.0f} s and was ended (stall_timeout)"


def awaited(training: Training, phase: str, applied: Collection[int], now: float) -> list[int]:
    """Ranks that the run cannot go on without, or cannot end without. `applied`: who has the last average."""
    living = training.cohort.living
    if phase == "training":
        if training.open is not None:
            return training.open.awaited
        limit = training.terms.stall_timeout or 0.0
        return [rank for rank in living if narration.stalled(training, rank, now, limit)]
    busy = training.plans.keys() - training.deposits.keys()
    return [rank for rank in living if phase == "leaving" or rank in busy or rank not in applied]

"""What an average costs a rank: all the time that it stands still for it, and not for others.

A rank tells how long it waited since its deposit, and of that what began with the order to average. The ways of the
deposit and of the order lie before that, and nobody works meanwhile: over a long road they cost as much as the average
itself. So the hub adds them. It knows by its own clock for how long a rank waited for others only: from the arrival of
its deposit to the order.

Pure: kept by training.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flodl_wire.plane_messages import Deposit


class Costs:
    """Of the last average, rank by rank."""

    def __init__(self) -> None:
        self._idle_ms: dict[int, float] = {}  # for others, before the order

    def ordered(self, deposited_at: Mapping[int, float], now: float) -> None:
        """Everybody's deposit has arrived, at those times, and all wait for the average."""
        self._idle_ms = {rank: (now - at) * 1e3 for rank, at in deposited_at.items()}

    def hidden(self) -> None:
        """The average is made while the ranks work: they tell themselves when they stood still for it."""
        self._idle_ms = {}

    def whole(self, rank: int, deposit: Deposit) -> Deposit:
        """The rank's first deposit behind the average, with all that the average cost it."""
        idle_ms = self._idle_ms.pop(rank, None)
        if idle_ms is None:
            return deposit
        return msgspec.structs.replace(deposit, sync_ms=max(deposit.sync_ms, deposit.wait_ms - idle_ms))

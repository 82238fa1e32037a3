"""How the ranks spend their time, in rows of a quarter of a second or more, for whoever watches.

A row is the difference between two readings of the run's accounts. So windows shorter than a row are added up, and what
several rows say is what the result will say, however seldom they come.
"""

from __future__ import annotations

from flodl_planes.coordinator.accounting import Accounts, Work
from flodl_wire.hub_messages import Spent, Timeline

EVERY_S = 0.25


class Clockwork:
    """`began_at`: the moment that the rows' `t` counts from."""

    def __init__(self, accounts: Accounts, began_at: float) -> None:
        self._accounts = accounts
        self._began_at = began_at
        self._read: dict[int, Work] = {}
        self._at = float("-inf")

    def row(self, now: float, *, last: bool = False) -> Timeline | None:
        """What was merged since the last row; None while it is too early, or nothing was. `last` is never too early."""
        if not last and now - self._at < EVERY_S:
            return None
        spent = []
        for rank, work in sorted(self._accounts.run.work.items()):
            before = self._read.get(rank, Work())
            if work.batches > before.batches or work.wait_ms > before.wait_ms:
                spent.append(_difference(rank, before, work))
                self._read[rank] = Work(work.batches, work.samples, work.busy_ms, work.wait_ms, work.sync_ms)
        if not spent:
            return None
        self._at = now
        return Timeline(round(now - self._began_at, 3), spent)


def _difference(rank: int, before: Work, now: Work) -> Spent:
    averaging = now.sync_ms - before.sync_ms
    waiting = max(0.0, now.wait_ms - before.wait_ms - averaging)  # the figure of waiting has the averaging in it
    return Spent(
        rank,
        _seconds(now.busy_ms - before.busy_ms),
        _seconds(waiting),
        _seconds(averaging),
        now.batches - before.batches,
        now.samples - before.samples,
    )


def _seconds(ms: float) -> float:
    return round(ms / 1e3, 6)

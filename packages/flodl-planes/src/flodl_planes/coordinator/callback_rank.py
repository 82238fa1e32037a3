"""Which rank evaluates the averaged model after an epoch, and what that costs it.

The *callback rank* is the fastest, and stays it until it dies: taking turns would make every rank's pace uneven. Its
evaluation rides on its next plan, and its share of that window is smaller by the time the last evaluations took.
"""

from __future__ import annotations

from collections.abc import Sequence

from flodl_planes.coordinator.accounting import Accounts

SMOOTHING = 0.3  # the reference's weight of the newest callback time


class CallbackRank:
    """`epoch` is the epoch that waits for its figures, None when none does; `rank` whoever has the role."""

    def __init__(self, accounts: Accounts, *, wanted: bool, chosen: int | None = None) -> None:
        """`chosen`: the rank that shall have the role while it lives."""
        self.wanted = wanted
        self._chosen = chosen
        self.rank: int | None = None
        self.epoch: int | None = None
        self.cost_ms = 0.0
        self._under_way = False
        self._before: tuple[int | None, bool] = (None, False)
        self._accounts = accounts

    def awaits(self, epoch: int) -> None:
        """The run before has not got that epoch's figures any more: the next plan asks for them."""
        if self.wanted:
            self.epoch, self._under_way = epoch, False

    def assign(self, completes: int | None, living: Sequence[int]) -> int | None:
        """The rank whose next plan asks for an evaluation: of the epoch just completed, or of one whose evaluator
        died.
        """
        if not self.wanted:
            return None
        self._before = (self.epoch, self._under_way)
        if completes is not None:
            self.epoch, self._under_way = completes, False
        if self.epoch is None or self._under_way or not living:
            return None
        self._under_way = True
        return self.holder(living)

    def holder(self, living: Sequence[int]) -> int:
        """Who has the role; given to the chosen one or the fastest where nobody living has it."""
        if self.rank is None or self.rank not in living:
            fastest = max(living, key=lambda rank: (self._accounts.rank_rate(rank), -rank))
            self.rank = self._chosen if self._chosen is not None and self._chosen in living else fastest
            self.cost_ms = 0.0
        return self.rank

    def done(self, epoch: int, elapsed_ms: float) -> bool:
        """The figures are in; False when nobody waits for them."""
        if epoch != self.epoch:
            return False
        self.epoch, self._under_way = None, False
        if elapsed_ms > 0:
            first = self.cost_ms == 0
            self.cost_ms = elapsed_ms if first else (1 - SMOOTHING) * self.cost_ms + SMOOTHING * elapsed_ms
        return True

    @property
    def orphaned(self) -> bool:
        """An epoch waits for its figures, and whoever was to get them is dead."""
        return self.wanted and self.epoch is not None and not self._under_way

    def withdrawn(self) -> None:
        """The plans of the last `assign` were taken back before anyone saw them."""
        self.epoch, self._under_way = self._before

    def lost(self, rank: int) -> None:
        """A rank is dead; when it was evaluating, the next plan asks another."""
        if rank == self.rank:
            self.rank = None
            self._under_way = False

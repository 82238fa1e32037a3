"""A round while it is under way, and what it may have completed."""

from __future__ import annotations

from dataclasses import dataclass, field

from flodl_planes.coordinator.pool import Span
from flodl_wire.plane_messages import Deposit, Plan


@dataclass
class OpenRound:
    """A round that has been ordered. `took`: rank → its plan and deposit; `final`: nothing is left to deal behind
    it; `free`: the ranks do not wait for it; `hands`: who takes part; `moved`: in direct mode, who has said Moved, as
    all have to; `theirs`: it is decided when the ranks have made it among themselves, and not before.
    """

    number: int
    attempt: int
    took: dict[int, tuple[Plan, Deposit]]
    final: bool
    free: bool = False
    hands: list[int] = field(default_factory=list)
    moved: set[int] = field(default_factory=set)
    theirs: bool = False

    @property
    def awaited(self) -> list[int]:
        """Who may be holding it up."""
        return [rank for rank in self.hands if self.theirs and rank not in self.moved]


@dataclass
class EpochMerged:
    """An epoch's last round is decided; `spans` is the ledger's proof."""

    epoch: int
    spans: list[Span]

"""A round while it is under way, and what it may have completed."""

from __future__ import annotations

from dataclasses import dataclass, field

from flodl_planes.coordinator.pool import Span
from flodl_wire.plane_messages import Deposit, Plan


@dataclass
class OpenRound:
    """A round that has been ordered. `took`: rank → its plan and deposit; `final`: nothing is left to deal behind
    it; `free`: the ranks do not wait for it; `hands`: in direct mode, who has to say Moved; `moved`: who has.
    """

    number: int
    attempt: int
    took: dict[int, tuple[Plan, Deposit]]
    final: bool
    free: bool = False
    hands: list[int] = field(default_factory=list)
    moved: set[int] = field(default_factory=set)


@dataclass
class EpochMerged:
    """An epoch's last round is decided; `spans` is the ledger's proof."""

    epoch: int
    spans: list[Span]

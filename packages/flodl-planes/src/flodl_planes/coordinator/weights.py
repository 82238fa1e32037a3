"""What a rank's work counts for in an average: n^γ for n steps, all together 1."""

from __future__ import annotations

from collections.abc import Mapping

from flodl_wire.faults import Broken
from flodl_wire.plane_messages import Deposit, Plan

Took = Mapping[int, tuple[Plan, Deposit]]


def steps_of(took: Took) -> dict[int, int]:
    """The steps of the ranks that have made some and whose model is finite."""
    return {rank: deposit.steps for rank, (_, deposit) in took.items() if deposit.steps > 0 and not deposit.poisoned}


def weigh(took: Took, gamma: float, first: int, *, needed: bool) -> tuple[dict[str, float], int]:
    """Rank (decimal) → weight, and the rank that leads: whose bytes those tensors take that have no mean.

    Where nobody has moved there are no weights, no data travels and everyone keeps what it has; unless an average is
    `needed`: then it is the leader's model. `first`: who leads where nobody has moved.

    Raises Broken (not-finite) when ranks have moved and none of their models is finite.
    """
    steps = steps_of(took)
    poisoned = {rank: deposit.poisoned for rank, (_, deposit) in took.items() if deposit.poisoned}
    if poisoned and not steps:
        raise Broken(
            "not-finite",
            "cannot go on training: no rank's model is finite any more",
            "; ".join(f"rank {rank}: first {tensor}" for rank, tensor in poisoned.items()),
            "lower the learning rate, clip the gradients (clip_norm=1.0), and resume from the last checkpoint",
        )
    leader = max(steps, key=lambda rank: (steps[rank], -rank)) if steps else first
    mass = {rank: float(count) ** gamma for rank, count in steps.items()}
    if needed and not mass:
        mass = {leader: 1.0}
    whole = sum(mass.values())
    return {str(rank): weight / whole for rank, weight in mass.items()}, leader

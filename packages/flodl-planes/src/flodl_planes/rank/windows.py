"""What stands between the Trainer's loop and the rest of the world: plans come in, reports go out.

Two kinds: `member.RankWindows` (a hub decides, the average arrives between two windows) and `solo.SoloWindows` (one
window per epoch, nobody else); `members.py` chooses. The loop cannot tell them apart, and so neither can the user's
code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from flodl_wire.faults import Fault
from flodl_wire.plane_messages import Deposit, EvalDone, Plan
from flodl_wire.result import RunResult

if TYPE_CHECKING:
    import torch

    from flodl_planes.rank.keeper import Keeper

PlanSeen = Callable[[Plan], None]  # told of a plan as soon as it is known, so that loading can begin


def in_words(error: BaseException) -> str:
    """What ended a script, for the run's records."""
    return str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}".rstrip(": ")


def cut(spans: list[list[int]], batch_size: int) -> list[tuple[int, int]]:
    """The batches of a plan as (position, count), each span cut by itself; its last piece may be short."""
    return [
        (position, min(batch_size, start + count - position))
        for start, count in spans
        for position in range(start, start + count, batch_size)
    ]


class Windows(Protocol):
    """The order of calls: open, then report once for each plan until None comes back, then close; or fail at any
    time."""

    result: RunResult | None  # there once report has returned None

    def open(self, model: torch.nn.Module, on_plan: PlanSeen, keeper: Keeper) -> Plan | None:
        """Join in with this model, which a checkpoint may replace. Returns the first plan; None: nothing is to do."""

    def tick(self, samples: int) -> None:
        """A batch is done: for a progress bar. Called for every batch; must cost nothing."""

    def report(self, deposit: Deposit) -> Plan | None:
        """The plan is done. Returns the next one (the model then holds the average), None at the end of the run."""

    def evaluated(self, done: EvalDone) -> None:
        """The evaluation that the last plan asked for."""

    def save(self, number: int) -> None:
        """Ship what belongs beside the checkpoint of round `number`, as the last plan asked."""

    def fail(self, error: BaseException) -> None:
        """The script raised; say so to whoever waits for us. Must not raise."""

    def close(self) -> None:
        """Leave. The model stays usable."""

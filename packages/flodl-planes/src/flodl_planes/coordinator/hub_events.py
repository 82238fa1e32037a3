"""What reaches the coordinator and what it orders: plain data, so that a whole run can be written down as a transcript.

Events are those of the transport, those below, and `Form`, `RankGone` and `Stop` as the launcher sent them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flodl_planes.coordinator.transport_events import TransportEvent
from flodl_planes.records.cursor import Cursor
from flodl_wire.faults import Fault
from flodl_wire.hub_messages import Form, FromHub, RankGone, Stop
from flodl_wire.plane_messages import RankDown, Round, TensorSpec, Terms


@dataclass(frozen=True)
class Tick:
    """Time passed, nothing else happened. `moved`: a number that changes while an average gets on."""

    moved: int = 0


@dataclass(frozen=True)
class RoundNotBegun:
    """The order `StartRound` found a host gone; its RelayLost stands in the queue."""

    round: int


@dataclass(frozen=True)
class CheckpointFound:
    """The order `FindCheckpoint` was carried out. `cursor` None: begin anew; `state`: ranks are handed one."""

    cursor: Cursor | None
    path: str = ""
    notes: tuple[str, ...] = ()
    state: bool = False


@dataclass(frozen=True)
class CheckpointRefused:
    """There is none that may be gone on from, and one was asked for."""

    fault: Fault


@dataclass(frozen=True)
class CheckpointWritten:
    """The order `WriteCheckpoint` was carried out."""

    path: str


@dataclass(frozen=True)
class CheckpointFailed:
    """It was not; the previous file is still there."""

    fault: Fault


HubEvent = (
    TransportEvent
    | Form
    | RankGone
    | Stop
    | Tick
    | RoundNotBegun
    | CheckpointFound
    | CheckpointRefused
    | CheckpointWritten
    | CheckpointFailed
)


@dataclass(frozen=True)
class SendRank:
    """Pass `message` to `rank` through its relay."""

    rank: int
    message: RankDown


@dataclass(frozen=True)
class StartRound:
    """Send `round` to the relays of `hosts` and carry its bytes; sums run in the order of `hosts`."""

    round: Round
    hosts: list[str]


@dataclass(frozen=True)
class CommitRound:
    """Every rank of a `direct` round has the average: let them apply it, once the hub has it too where it is kept."""

    round: int
    attempt: int


@dataclass(frozen=True)
class Expel:
    """End the process of a rank that stands still, unless it is another that holds it up."""

    rank: int


@dataclass(frozen=True)
class FindCheckpoint:
    """Look for what `said` means, load it, and hand out the state that belongs to it; answered by CheckpointFound or
    CheckpointRefused. The next round marked `given` is of its average.
    """

    said: str
    terms: Terms
    tensors: list[TensorSpec]


@dataclass(frozen=True)
class CopyAverage:
    """Put the last average aside: the next round will overwrite it."""


@dataclass(frozen=True)
class WriteCheckpoint:
    """Write what was put aside, in a thread; answered by CheckpointWritten or CheckpointFailed. `state_of`: the rank
    whose state of round `number` belongs beside it.
    """

    cursor: Cursor
    number: int
    state_of: int | None


@dataclass(frozen=True)
class Rescue:
    """The run fails: write the average of round `number`, the last one decided, if it is whole and in reach. Answered
    by nothing.
    """

    cursor: Cursor
    number: int


@dataclass(frozen=True)
class Tell:
    """Say `message` to the launcher."""

    message: FromHub


@dataclass(frozen=True)
class AppendMetrics:
    """One line for metrics.jsonl."""

    row: dict[str, Any]


@dataclass(frozen=True)
class Exit:
    """Nothing is left to do: stay until the launcher lets go, then end with `code`."""

    code: int


HubOrder = (
    SendRank
    | StartRound
    | CommitRound
    | Expel
    | FindCheckpoint
    | CopyAverage
    | WriteCheckpoint
    | Rescue
    | Tell
    | AppendMetrics
    | Exit
)

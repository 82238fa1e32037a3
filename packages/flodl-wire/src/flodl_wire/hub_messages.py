"""The pair's messages, launcher ⇄ hub: JSON, one per datagram of an inherited Unix SOCK_SEQPACKET pair
(docs/protocol.md, P rules).

A `Passed` travels with one file descriptor: a connection the door has routed, with the bytes it had already read. The
end of the pair is the end of the other side.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from flodl_wire.result import RunResult
from flodl_wire.specs import RankPlace

MAX_IN_FLIGHT = 64  # connections passed and not yet taken; more are refused at the door
MAX_DATAGRAM = 128 * 1024  # below the kernel's default send buffer of a Unix socket


class Large(msgspec.Struct, tag="large"):
    """Either way, with a descriptor: a memfd that holds the JSON of one message of more than MAX_DATAGRAM bytes (the
    result of a run of a thousand epochs). It stands for that message; `size` in bytes.
    """

    size: int


class Form(msgspec.Struct, tag="form"):
    """To the hub: the frozen world."""

    places: list[RankPlace]


class Passed(msgspec.Struct, tag="passed"):
    """To the hub, with a descriptor: a relay or store connection. `head` is what the door read: the preface, hex."""

    number: int
    head: str
    address: str  # of the other side, numeric, for messages


class RankGone(msgspec.Struct, tag="rank_gone", omit_defaults=True):
    """To the hub: a rank's process ended or its host was lost; `clean` = exit 0."""

    rank: int
    clean: bool
    why: str  # "killed by signal 9 (out of memory?)", "exit 3", "host node-b lost"
    code: int | None = None  # its exit code when its program ended by itself; None: a signal, or the host is lost


class Stop(msgspec.Struct, tag="stop"):
    """To the hub: the run is over as far as you are concerned; write what you must and exit."""

    reason: str


class Ready(msgspec.Struct, tag="ready"):
    """From the hub: I serve; `socket` is my Unix socket for relays of this very box."""

    socket: str


class Taken(msgspec.Struct, tag="taken"):
    """From the hub: connection `number` no longer counts as in flight: authenticated, dropped, or held."""

    number: int


class RelayIn(msgspec.Struct, tag="relay_in"):
    """From the hub: the relay of `host` is here."""

    host: str


class RankIn(msgspec.Struct, tag="rank_in"):
    """From the hub: a rank has loaded and is ready to train."""

    rank: int


class Met(msgspec.Struct, tag="met"):
    """From the hub, in nccl_*: a rank talks to the run's store, and none has loaded: they meet by `rendezvous()`, and
    what they do then is the script's own.
    """


class TrainingBegan(msgspec.Struct, tag="training_began"):
    """From the hub: every rank is ready; the first batches are out. `text` is a line for people (mode, samples,
    parameters).
    """

    text: str


class RankProgress(msgspec.Struct, omit_defaults=True):
    rank: int
    samples_per_s: float
    batches: int
    stalled: bool = False
    first_batch_s: float = 0.0  # still in its first batch, for so long by now: it compiles or tunes, and does not stand


class Progress(msgspec.Struct, tag="progress", omit_defaults=True):
    """From the hub, about twice a second: live numbers for the bar and state.json."""

    epoch: int  # 0-based
    epochs: int
    samples: int  # merged in this epoch
    dataset: int  # samples an epoch has
    samples_per_s: float
    loss: float | None = None
    balance: float | None = None
    sync_share: float | None = None
    anchor: int | None = None  # rank
    anchor_host: str = ""  # where that rank is
    rounds: int = 0
    ranks: list[RankProgress] = []


class EpochDone(msgspec.Struct, tag="epoch_done", omit_defaults=True):
    """From the hub: an epoch is merged and (if there is an evaluate) evaluated. `text` is the line for people, the rest
    the same in figures.
    """

    epoch: int  # 0-based
    text: str
    loss: float | None = None
    wall_s: float = 0.0
    samples: int = 0
    samples_per_s: float = 0.0
    balance: float | None = None
    sync_share: float | None = None
    eval: dict[str, float] = {}


class Spent(msgspec.Struct, array_like=True):
    """How a rank spent its time since the last `Timeline`: seconds, and the work it did in them."""

    rank: int
    busy_s: float  # computing, data included
    waiting_s: float  # for the others
    averaging_s: float
    batches: int
    samples: int


class Timeline(msgspec.Struct, tag="timeline"):
    """From the hub, at most four times a second: what every rank did in the windows merged since the last one."""

    t: float  # s since training began
    spent: list[Spent]


class Notice(msgspec.Struct, tag="notice"):
    """From the hub: a line for people (a rank lost and tolerated, a schema refused)."""

    text: str


class Expelled(msgspec.Struct, tag="expelled"):
    """From the hub: the process of a rank that stood still for `seconds` is being ended (stall_timeout)."""

    rank: int
    seconds: float


class Trained(msgspec.Struct, tag="trained"):
    """From the hub: training is whole and its result is written; every rank has been told to leave and owes nothing."""


class Finished(msgspec.Struct, tag="finished"):
    """From the hub: training is over, everything is written, and every rank has left it."""

    result: RunResult


class HubFailed(msgspec.Struct, tag="hub_failed", omit_defaults=True):
    """From the hub: the run cannot go on. `result` holds what there is."""

    code: str
    what: str
    why: str = ""
    fix: str = ""
    rank: int | None = None  # the culprit when there is one
    result: RunResult | None = None


ToHub: TypeAlias = Large | Form | Passed | RankGone | Stop
FromHub: TypeAlias = (
    Large
    | Ready
    | Taken
    | RelayIn
    | RankIn
    | Met
    | TrainingBegan
    | Progress
    | Timeline
    | EpochDone
    | Notice
    | Expelled
    | Trained
    | Finished
    | HubFailed
)

"""The CPU plane's messages, rank ⇄ relay ⇄ hub, as JSON frames (docs/protocol.md, C rules); tensor bytes travel as
chunk frames.

A rank talks to its host's relay over a Unix socket; the relay passes rank messages up and hub messages down unread,
wrapped with the rank's number, and acts itself on Round, Commit and Attach. Where hub and relay share a box they share
memory too.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from flodl_wire.result import RunResult

CHUNK_BYTES = 1 << 20  # measured best on loopback and 1 Gbit/s alike
WIRES = ("float32", "bf16", "int8")  # how float chunks travel between hosts (docs/protocol.md, C-30)
OUTERS = ("nesterov", "slow_momentum")  # what the hub may make of an average (docs/protocol.md, C-35)


class TensorSpec(msgspec.Struct, array_like=True, frozen=True):
    """One entry of a model's state: its place in the flat buffer follows from the order (docs/protocol.md, C-3)."""

    name: str
    shape: list[int]
    dtype: str  # safetensors' words: F32 F64 BF16 F16 I64 I32 U8 BOOL …
    kind: str  # param | buffer
    ties: list[str] = []  # further state_dict names of the very same tensor


class Section(msgspec.Struct, array_like=True, frozen=True):
    """A run of equal dtype in the flat buffer. `op`: mean (weighted, floats) or take (the leading rank's bytes)."""

    dtype: str
    elements: int
    offset: int  # bytes, 64-aligned
    op: str


class Terms(msgspec.Struct, frozen=True):
    """What every rank's script must agree on; the hub refuses a world whose ranks differ, naming the term."""

    mode: str
    dataset: int  # samples
    batch_size: int
    epochs: int
    seed: int
    evaluates: bool
    max_failure: int | float | None = None  # ranks, or a share of the world as a float below 1
    gamma: float = 1.0
    elche: dict[str, Any] = {}  # cadence settings that are not default: anchor, max_anchor, overhead_target, …
    wire: str = "float32"  # one of WIRES
    outer: dict[str, Any] = {}  # the outer optimizer: kind (one of OUTERS), lr, momentum; empty: the plain average
    checkpoint_every: int | float | None = None  # epochs as a whole number, seconds as a float; None: only at the end
    resume: str | None = None  # auto | latest | a run's id | a path at the controller
    stall_timeout: float | None = None  # seconds after which a rank that does not get on is ended
    nan: str = "stop"  # what a contribution that is not finite does: stop | skip
    callback_rank: int | None = None  # evaluates and ships its state; None: the fastest


# rank → hub (through the relay)


class Gpu(msgspec.Struct, frozen=True):
    """What a rank's card is known for, before it has done anything."""

    vendor: str  # cuda | rocm
    generation: int  # the first number of its architecture: 9 of sm90, 11 of gfx1100
    memory_gb: int  # of 1024³ bytes


class RankHello(msgspec.Struct, tag="rank_hello", omit_defaults=True):
    """First; its live buffer's descriptor travels with it (rank → relay leg only)."""

    rank: int
    terms: Terms
    tensors: list[TensorSpec]
    sections: list[Section]
    model_sig: str
    device: str = ""
    collective: str = ""  # nccl_* modes: nccl between GPUs, gloo between processors
    gpu: Gpu | None = None  # None: a processor, or a card that did not answer


class Deposit(msgspec.Struct, tag="deposit", omit_defaults=True):
    """The plan of `window` is done and my live buffer stands still until its round has been applied."""

    window: int
    steps: int
    samples: int
    compute_ms: float = 0.0  # forward, backward, optimizer
    data_ms: float = 0.0  # waiting for batches
    first_ms: float = 0.0  # compute+data of the window's first batch (its excess is the fill)
    wait_ms: float = 0.0  # since the previous deposit: waiting for the round, reducing, applying
    sync_ms: float = 0.0  # from the last Round received to applied; read of a window's first deposit only
    loss_sum: float = 0.0  # Σ loss·samples
    loss_samples: int = 0
    not_finite: bool = False
    divergence: float | None = None  # ‖mine − average‖ / ‖average‖ at the last round, where the rank measures it
    late_ms: float = 0.0  # cpu_async: from the deposit before to the arrival of its average
    lr: float | None = None  # the optimizer's learning rate at the window's end (the largest of its groups)
    poisoned: str = ""  # the first tensor of my model that is not finite


class Moved(msgspec.Struct, tag="moved", omit_defaults=True):
    """My part of a `direct` round is over and nothing is applied yet: the average is here, or `error` says why not."""

    round: int
    attempt: int
    error: str = ""
    forming: bool = False  # the error came before any tensor moved: the ranks could not be joined


class Applied(msgspec.Struct, tag="applied"):
    """The round's average stands in my live buffer (sent for rounds marked `confirm`)."""

    round: int
    sync_ms: float


class EvalDone(msgspec.Struct, tag="eval_done", omit_defaults=True):
    epoch: int
    metrics: dict[str, float]
    elapsed_ms: float


class State(msgspec.Struct, tag="state", omit_defaults=True):
    """What of me belongs beside the checkpoint of that round: optimizer, scheduler, scaler, random streams.

    Sent before the deposit of the plan that asked for it (`Plan.save`), or not at all. The `size` bytes, a safetensors
    file, lie in a memfd that travels with this inside a box; between boxes they follow in `state_part`.
    """

    round: int
    size: int
    elapsed_ms: float = 0.0


class Leaving(msgspec.Struct, tag="leaving", omit_defaults=True):
    """Goodbye of a rank that has what it needs; `error` when its script raised instead (last line of the traceback)."""

    error: str = ""


# hub → rank (through the relay)


class Plan(msgspec.Struct, tag="plan", omit_defaults=True):
    """Your next window: [start, count] spans of positions of the epoch's permutation, in batches as agreed."""

    window: int
    epoch: int
    spans: list[list[int]]
    evaluate: int | None = None  # first evaluate the averaged model for this epoch
    overshoot: int | None = None  # cpu_async: batches of it that may be done before the window before is averaged
    save: int | None = None  # then send your State for the checkpoint of that round
    step: int = 0  # batches of the whole run dealt before this window, to any rank
    world_batches: int = 0  # batches of all ranks in this window; 0: as many as mine
    further: bool = False  # more of the window that you have deposited already: no average lies between


class Finish(msgspec.Struct, tag="finish"):
    """Nothing more to do; return this from Trainer.run()."""

    result: RunResult


class Restore(msgspec.Struct, tag="restore"):
    """The State that a checkpoint holds, for a rank that begins: `size` bytes in a memfd or file that travels with this
    (relay → rank; hub → relay inside a box, for every rank there). Between boxes they follow in `state_part`.
    """

    size: int


class Dismiss(msgspec.Struct, tag="dismiss"):
    """The run has failed; stop."""

    reason: str


# hub → relay


class Round(msgspec.Struct, tag="round", omit_defaults=True):
    """Average now. `weights` are normalised (they sum to 1 over the world); a rank that is not named carries none.

    `alone`: this host holds the whole world: its ranks average in shared memory among themselves, and that is applied
    at once. Otherwise the relay ships the host's weighted sum in chunk frames, the average comes back likewise, and
    Commit lets the ranks apply it. A later attempt of the same round replaces an unfinished one (a host was lost).
    `leader` gives the bytes of the take sections. `hands`: the living ranks, who divide the work of an `alone` round
    (chunk c to the c mod n-th). `keep`: leave the average of an `alone` round with the hub too (other rounds always
    do). `wire`: how chunks of float sections travel (C-30). `outer`: the hub applies the outer optimizer (C-35). No
    weights: no data moves at all. `apart`: the ranks compute on meanwhile (cpu_async); the relay does every rank's
    share of an `alone` round, and the average arrives in a live buffer that only holds a snapshot. `direct`: the ranks
    in `hands` move the data among themselves (nccl_*), say Moved, and apply at Commit. `given`: nobody sums, the
    average is one that the hub has (a checkpoint); `state`: and behind it a Restore is on its way, to be waited for.
    """

    round: int
    weights: dict[str, float]  # rank (decimal) → weight
    leader: int
    alone: bool
    attempt: int = 0
    confirm: bool = False
    keep: bool = False
    apart: bool = False
    direct: bool = False
    hands: list[int] = []
    wire: str = "float32"
    outer: bool = False
    given: bool = False
    state: bool = False
    plans: dict[str, Plan] = {}  # rank → what it does next, once the average is in


class Commit(msgspec.Struct, tag="commit"):
    """Every chunk of the average has been sent: apply it."""

    round: int
    attempt: int


# relay ⇄ rank, relay ⇄ hub housekeeping


class Attach(msgspec.Struct, tag="attach"):
    """relay → rank, with descriptors [control, result, live of each rank in order]: the host's shared memory."""

    ranks: list[int]  # local ranks in order
    total_bytes: int
    sum_bytes: int


class RelayHello(msgspec.Struct, tag="relay_hello", omit_defaults=True):
    """relay → hub, first."""

    host: str
    ranks: list[int]


class Shared(msgspec.Struct, tag="shared"):
    """relay → hub on one box, before the last rank's hello, with descriptors [result, live of each rank in order]."""

    ranks: list[int]
    total_bytes: int
    sum_bytes: int


class FromRank(msgspec.Struct, tag="from_rank"):
    """relay → hub: `body` is the rank's message as it came."""

    rank: int
    body: msgspec.Raw


class ToRank(msgspec.Struct, tag="to_rank"):
    """hub → relay: pass `body` on to `rank`."""

    rank: int
    body: msgspec.Raw


class RankLost(msgspec.Struct, tag="rank_lost", omit_defaults=True):
    """relay → hub: the rank's socket closed; `said_goodbye` = after Leaving."""

    rank: int
    said_goodbye: bool


class Expelling(msgspec.Struct, tag="expelling"):
    """relay → hub: as you told, I end that rank's process, which only now counts: others only waited for it."""

    rank: int


class Kept(msgspec.Struct, tag="kept"):
    """relay → hub: the average of an `alone` round marked `keep` stands in `result`, or was sent in chunks."""

    round: int
    attempt: int


class StatePart(msgspec.Struct, tag="state_part", omit_defaults=True):
    """Between boxes, when nothing else is to be sent: a piece of a rank's last State (up), or of the Restore (down).

    Pieces come in order, 256 KiB each, the last one shorter.
    """

    data: bytes
    rank: int = -1


class Expel(msgspec.Struct, tag="expel"):
    """hub → relay: end that rank's process (it has stood still for too long)."""

    rank: int


class RelayBeat(msgspec.Struct, tag="relay_beat"):
    """Both ways on the relay channel, every second."""


RankUp: TypeAlias = RankHello | Deposit | Moved | Applied | EvalDone | State | Leaving
RankDown: TypeAlias = Attach | Plan | Round | Commit | Restore | Finish | Dismiss
RelayUp: TypeAlias = RelayHello | Shared | FromRank | Expelling | RankLost | Kept | StatePart | RelayBeat
RelayDown: TypeAlias = ToRank | Round | Commit | Restore | StatePart | Expel | RelayBeat

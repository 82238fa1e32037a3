"""The join link's messages, agent ⇄ window, as JSON frames on a sealed ``join`` channel (docs/protocol.md, J rules).

The link never closes while the host takes part: it carries the hello, the verdict at the door, the formed world, logs,
exits, beats, and the order to stop; its end is the host's end.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from flodl_wire.plane_messages import TensorSpec
from flodl_wire.specs import Command, Envelope, RelaySpec

RELAY_GONE = "this host's relay is gone"  # stands in the last words of a rank that ends because of it: an echo


class DeviceOffer(msgspec.Struct, omit_defaults=True):
    """One device as the host sees it."""

    kind: str  # cpu | cuda | rocm
    index: int  # physical index; for cpu 0..N-1
    label: str = ""  # "NVIDIA H200 (139GB, sm90)", or "cpu"
    uuid: str = ""
    arch: str = ""
    memory_bytes: int = 0
    pci: str = ""  # "0000:65:00.0"; the one name of a card that every tool agrees on


class Hello(msgspec.Struct, tag="hello", omit_defaults=True):
    """Up, first: who I am and what I offer."""

    host: str
    agent: str  # random id of this agent process (hex): tells a re-join from a second box of the same name
    devices: list[DeviceOffer]
    libtorch: str = ""  # variant or build label: "cu128", "rocm70", "cpu", "" unknown
    torch_version: str = ""
    python: str = ""
    dataset_sig: str = ""  # 64 hex; "" or zeros: not given
    model_sig: str = ""
    nccl_version: list[int] | None = None
    run_id: str = ""
    argv: list[str] | None = None  # a walk-in's own arguments, to be compared; None: it takes the run's
    manifest_hash: str = ""
    boot_id: str = ""  # kernel boot id: same box or not
    cores: int = 0
    rehearsal: bool = False  # check me and tell me, but do not count me (fdl join --try)
    quiet: bool = False  # a rehearsal for Accept.args alone: the hello proper follows, so it is worth no line
    road: str = ""  # of a walk-in: direct | ssh
    dialled: str = ""  # the controller's address as that host was given it
    own_address: str = ""  # its own end of the connection; the window may see another behind NAT
    flodl: str = ""  # version of the agent


class Accept(msgspec.Struct, tag="accept", omit_defaults=True):
    """Down: you are in. Ranks may still be renumbered before the world forms; WorldFormed is what counts."""

    ranks: list[int]
    formation_wait_s: float
    instance: str  # the window's own nonce
    salt_hex: str | None = None  # under open admission only
    args: list[str] | None = None  # what a walk-in's program will be given; None: the run states none


class Reject(msgspec.Struct, tag="reject"):
    """Down: you are not in, why, and what would mend it. The link closes behind it."""

    code: str
    what: str
    why: str
    fix: str


class WorldFormed(msgspec.Struct, tag="world_formed", omit_defaults=True):
    """Down: the world is frozen; start your processes."""

    envelope: Envelope
    relay: RelaySpec | None  # None in mode torch
    command: Command | None = None  # None: run your own bin with `args`
    args: list[str] = []


class AskSchema(msgspec.Struct, tag="ask_schema"):
    """Down, between hello and formation: what does your model consist of? Asked to name what differs."""


class Schema(msgspec.Struct, tag="schema", omit_defaults=True):
    """Up: the answer, in the order of the model's state; empty when it was never looked at."""

    tensors: list[TensorSpec] = []


class Echo(msgspec.Struct, tag="echo", omit_defaults=True):
    """Up, of a rehearsal only: `text` is weight; answer with `want` bytes of it. Measures the road."""

    number: int
    text: str = ""
    want: int = 0


class Echoed(msgspec.Struct, tag="echoed", omit_defaults=True):
    """Down: the answer to `Echo`."""

    number: int
    text: str = ""


class Step(msgspec.Struct, tag="step", omit_defaults=True):
    """Up: something worth a line happened ("relay up", "rank 2 started")."""

    text: str
    rank: int | None = None


class Log(msgspec.Struct, tag="log", omit_defaults=True):
    """Up: output of one process, whole lines without their line ends. rank None: the relay or the agent itself
    (`source`).
    """

    lines: list[str]
    rank: int | None = None
    source: str = "rank"  # rank | relay | agent
    stream: str = "out"  # out | err


class GpuLoad(msgspec.Struct, omit_defaults=True):
    """One offered GPU at this moment; shares from 0 to 1, None where the driver does not say."""

    index: int  # physical, as in DeviceOffer
    busy: float | None = None
    memory_used: int | None = None  # bytes
    memory_total: int | None = None


class HostLoad(msgspec.Struct, tag="host_load", omit_defaults=True):
    """Up, every 2 s while the host is in: what the box does. While the link is full none is sent, then the newest."""

    clock: float  # s since 1970 by the host's own clock; it may be wrong, and then this says by how much
    cpu: float  # share of all processors, 0 to 1, since the last
    memory_used: int  # bytes
    memory_total: int
    rx_per_s: float = 0.0  # bytes/s over every interface but loopback
    tx_per_s: float = 0.0
    gpus: list[GpuLoad] = []


class RankExited(msgspec.Struct, tag="rank_exited", omit_defaults=True):
    """Up: a rank's process ended. `code` is None when a signal ended it."""

    rank: int
    code: int | None = None
    signal: int | None = None
    tail: list[str] = []  # last 50 lines it printed
    ordered: bool = False  # we had already begun to end it (abort): its end is no news
    out_of_memory: bool = False  # the kernel's own counters say so
    stood_still_s: float = 0.0  # it was stopped by a signal for so long behind its training, and we ended it for that


class RelayExited(msgspec.Struct, tag="relay_exited", omit_defaults=True):
    """Up: the relay's process ended."""

    code: int | None = None
    signal: int | None = None
    tail: list[str] = []
    stood_still_s: float = 0.0  # it was stopped for so long behind the training, and ended for that


class HostFault(msgspec.Struct, tag="host_fault", omit_defaults=True):
    """Up: this host cannot go on (keeper died, command not found); everything here is being ended."""

    code: str
    what: str
    why: str = ""
    fix: str = ""


class Bye(msgspec.Struct, tag="bye", omit_defaults=True):
    """Up, last: everything here has ended; the close that follows is a goodbye, not a loss."""

    reason: str = ""


class Abort(msgspec.Struct, tag="abort", omit_defaults=True):
    """Down: end everything, then say Bye."""

    reason: str
    grace_s: float | None = None


class Beat(msgspec.Struct, tag="beat", omit_defaults=True):
    """Both ways, every second: I am alive."""

    trained: bool = False  # down: training is whole; a rank that stands still from now on keeps the run from its end


MAX_ECHO = 1 << 20  # bytes of one Echo or Echoed
ECHO_BUDGET = 64 << 20  # bytes one rehearsal may cost, each way

JoinUp: TypeAlias = Hello | Step | Log | HostLoad | RankExited | RelayExited | HostFault | Bye | Beat | Schema | Echo
JoinDown: TypeAlias = Accept | Reject | WorldFormed | Abort | Beat | AskSchema | Echoed

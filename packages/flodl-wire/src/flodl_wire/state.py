"""``state.json``: the truth about a run at this moment, as served on the one port and kept in runs/<id>/. Additive
only.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flodl_wire.hub_messages import Progress

VERSION = 1

PHASES = ("waiting", "staging", "forming", "training", "done", "failed")


class Member(msgspec.Struct):
    """One host that is in."""

    host: str
    ranks: list[int]
    local_devices: list[str]  # "cpu", "cuda:0"
    gpus: list[str]  # labels, one per device
    libtorch: str
    joined_at_secs: float  # after the window opened
    road: str = ""  # how it came: local | ssh | tunnel (started from here), direct | ssh (a walk-in)
    address: str = ""  # numeric address the door saw
    status: str = "in"  # in | running | lost | left
    why: str = ""
    own_address: str = ""  # its own end of the connection, as it sees it; differs from `address` behind NAT
    dialled: str = ""  # the controller's address as that host was given it
    walk_in: bool = False  # no roster names it


class RankState(msgspec.Struct, omit_defaults=False):
    rank: int
    host: str
    device: str
    status: str  # starting | ready | training | stalled | done | lost
    why: str = ""


class Cause(msgspec.Struct):
    """The first cause of a failure."""

    what: str
    host: str = ""
    rank: int | None = None
    tail: list[str] = []
    fix: str = ""


class Afterthought(msgspec.Struct):
    """What is understood of a failure once it is over, as `fdl why` and the report say it."""

    tries: list[str] = []  # what to try, the most fitting first
    first: str = ""  # what broke first, where that is not what the verdict named
    note: str = ""  # why it is not


class State(msgspec.Struct):
    run: str
    phase: str
    why: str  # the sentence behind the phase, with its counts
    mode: str
    joined_ranks: int
    joined_hosts: int
    min_rank_start: int
    target_ranks: int | None
    window_remaining_secs: float | None  # live; None outside the open window
    cap_remaining_secs: float | None
    start_mode: str
    start_armed: bool
    members: list[Member] = []
    ranks: list[RankState] = []
    refused: list[dict[str, Any]] = []  # host, address, code, what, why, fix, at_secs, times; the last ones
    missing: list[str] = []  # hosts of the roster that are not in
    progress: Progress | None = None
    degraded: bool = False
    cause: Cause | None = None
    afterthought: Afterthought | None = None  # of a failed run, a moment behind its verdict
    dashboard_port: int | None = None
    instance: str = ""
    port: int = 0  # of the controller
    v: int = VERSION

"""The window's knobs, resolved once: what ``controller.join`` says, what the situation fills in, and every refusal
between them.

The machine behind (quorum.py, window.py) only ever sees a `Knobs`; nothing else in this room reads ``controller.join``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from flodl_window import modes
from flodl_wire import devices
from flodl_wire.config import TOKEN, Cluster, JoinWindow, StartMode
from flodl_wire.faults import Refused

DEFAULT_QUORUM = 2  # a world of one has nothing to average with
DEFAULT_CAP_S = 600.0

Admission = Literal["salt", "token", "open"]
# as many ranks as the roster gives, known when its last "all" host has said hello
CAPACITY: Literal["capacity"] = "capacity"


@dataclass(frozen=True)
class Knobs:
    """What the window goes by. Ranks are counted, seconds run from the moment the window opens."""

    quorum: int | Literal["capacity"]
    target: int | Literal["capacity"] | None  # early close
    join_s: float
    cap_s: float
    start: StartMode
    admission: Admission
    walk_ins: bool  # hosts that no roster names are admitted
    loopback_only: bool = False  # tunnel_only: bind loopback whatever the roster says


def capacity(cluster: Cluster) -> tuple[int, list[str]]:
    """Ranks the roster is known to give, and the hosts that must be asked (``local_devices: all``)."""
    known, asked = 0, []
    for index, worker in enumerate(cluster.workers):
        count = devices.count(devices.parse(worker.local_devices, f"workers[{index}].local_devices"))
        if count is None:
            asked.append(worker.host)
        else:
            known += count
    return known, asked


def resolve(cluster: Cluster, mode: str, *, fanout: bool, loopback: bool) -> Knobs:
    """The knobs of this run. `fanout`: we start the roster's agents ourselves; `loopback`: the port is bound to
    loopback alone.

    Raises Refused naming the key or keys.
    """
    join = cluster.controller.join or JoinWindow()
    known, asked = capacity(cluster)
    _check_alone(join)
    cap_s = _cap(join)
    quorum = _quorum(join, known, asked, mode)
    least = known + len(asked) if quorum == CAPACITY else quorum  # an "all" host gives one rank at least
    target = _target(join, least, reachable=bool(asked) or known >= least)
    surely = asks_for_walk_ins(cluster)
    # With an "all" host nobody knows yet whether these are more than the roster gives.
    walk_ins = surely or bool(asked and (join.min_rank_start or join.target_ranks))
    _check_tunnel_only(join, mode)
    return Knobs(
        quorum=quorum,
        target=target,
        join_s=float(join.join_timeout),
        cap_s=cap_s,
        start=join.start,
        admission=_admission(cluster, join, loopback=loopback, fanout=fanout, walk_ins=walk_ins, surely=surely),
        walk_ins=walk_ins,
        loopback_only=join.tunnel_only,
    )


def _cap(join: JoinWindow) -> float:
    """Seconds after which the window closes for good."""
    if join.max_join_timeout is None:
        return max(DEFAULT_CAP_S, float(join.join_timeout))
    if join.max_join_timeout < join.join_timeout:
        raise _refuse(
            "max_join_timeout",
            f"{join.max_join_timeout:g} s is shorter than controller.join.join_timeout, {join.join_timeout:g} s",
            "make the cap the longer one",
        )
    return float(join.max_join_timeout)


def _quorum(join: JoinWindow, known: int, asked: list[str], mode: str) -> int | Literal["capacity"]:
    """The fewest ranks: as said, else all that the roster gives. `known`, `asked`: as of `capacity`."""
    if join.min_rank_start is not None:
        return join.min_rank_start
    if join.discovery:
        why = "nobody knows how many ranks to wait for"
        raise _refuse("discovery", why, "say so with controller.join.min_rank_start")
    if asked or known >= DEFAULT_QUORUM or mode == modes.TORCH:
        return CAPACITY
    if join.target_ranks is None:
        raise _refuse(
            "min_rank_start",
            f"the roster gives {known} rank, and a world of one has nothing to average with",
            "give it two devices, e.g. local_devices: cpu:2, run the command without cluster: true, "
            "or set min_rank_start: 2 so that another host can walk in",
        )
    return DEFAULT_QUORUM  # a bare one-host config with a target: it waits for a walk-in


def _target(join: JoinWindow, least: int, *, reachable: bool) -> int | Literal["capacity"] | None:
    """How many ranks close the window early. `least`: ranks that the quorum comes to; `reachable`: by the roster."""
    target = join.target_ranks
    if target is None:
        return CAPACITY if reachable and not join.discovery and join.start != "manual" else None
    if target < least:
        raise _refuse(
            "target_ranks",
            f"{target} is below controller.join.min_rank_start, {least}"
            if join.min_rank_start
            else f"{target} is below the {least} ranks that the roster gives, and all of them are waited for",
            f"make it {least} or more, leave it out, or set controller.join.min_rank_start to {target} or less",
        )
    return target


def _check_tunnel_only(join: JoinWindow, mode: str) -> None:
    if join.tunnel_only and not join.discovery:
        raise _refuse(
            "tunnel_only",
            "it is about walk-ins, and controller.join.discovery is off",
            "set discovery: true, or delete tunnel_only",
        )
    if join.tunnel_only and modes.is_nccl(mode):
        raise _refuse(
            "tunnel_only",
            f"mode {mode} moves tensors peer to peer, past any tunnel",
            "use a cpu mode, e.g. cpu_cadence",
        )


def _check_alone(join: JoinWindow) -> None:
    """What a key may hold by itself, and the pairs that contradict each other whatever the roster."""
    if join.min_rank_start is not None and join.min_rank_start < DEFAULT_QUORUM:
        raise _refuse(
            "min_rank_start",
            f"{join.min_rank_start} is too few: a world of one has nothing to average with",
            "use 2 or more",
        )
    for key, value in (("join_timeout", join.join_timeout), ("max_join_timeout", join.max_join_timeout)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise _refuse(key, f"{value} is no length of time", "use seconds, more than 0")
    if join.target_ranks is not None and join.target_ranks < DEFAULT_QUORUM:
        raise _refuse("target_ranks", f"{join.target_ranks} is too few for a world", "use 2 or more, or leave it out")
    if join.token is not None and not TOKEN.match(join.token):
        raise _refuse("token", "it is not 32 lowercase hex digits", "make one with: openssl rand -hex 16")
    if join.token is not None and join.open_admission:
        why = "controller.join.open_admission: true lets everybody in without it"
        raise _refuse("token", why, "delete one of the two")
    if join.start == "manual" and join.target_ranks is not None:
        raise _refuse(
            "target_ranks",
            "controller.join.start: manual waits for the operator, so a target would never close the window",
            "delete one of the two, or use start: hybrid",
        )


def asks_for_walk_ins(cluster: Cluster) -> bool:
    """True when hosts that no roster names are surely wanted: by discovery, or because more ranks are asked for than
    the roster gives (seed 000: "pair it with target_ranks above the configured capacity").
    """
    join = cluster.controller.join or JoinWindow()
    known, asked = capacity(cluster)
    more = any(n is not None and n > known for n in (join.min_rank_start, join.target_ranks))
    return join.discovery or (more and not asked)


def _admission(
    cluster: Cluster, join: JoinWindow, *, loopback: bool, fanout: bool, walk_ins: bool, surely: bool
) -> Admission:
    """Who must prove what. A loopback port without a token is open by construction to those who dial in by
    themselves: reaching it is the credential. Tunnels that we open on other boxes end that: whoever uses those boxes
    reaches it too. A fan-out's own agents hold the salt, so when nobody else may come nobody else is let in.
    """
    if join.token is not None:
        return "token"
    tunneled = any(worker.tunnel for worker in cluster.workers)
    if join.open_admission or (loopback and not tunneled and (walk_ins or not fanout)):
        return "open"
    if surely or not fanout:
        key = "discovery" if join.discovery else "target_ranks" if join.target_ranks else "min_rank_start"
        who = f"controller.join.{key} waits for workers that dial in" if surely else "workers dial in"
        raise _refuse(
            "token",
            f"{who} by themselves, and nothing tells them from strangers",
            "set token (make one with: openssl rand -hex 16) and give it to the workers, or open_admission: true "
            "on a network you trust",
        )
    return "salt"


def _refuse(key: str, why: str, fix: str) -> Refused:
    return Refused("bad-window", f"cannot use controller.join.{key}", why, fix)

"""Every network deadline and beat of the project in one table, all moved together by FLODL_NET_TIMEOUT_SCALE.

The scale's rule (finite, at least 0.1) is the reference's; so is rounding deadlines up to whole seconds, at least one,
so that a small scale never asks the impossible of a loaded box. Beats only ever shrink: a larger scale means a slower
network, and silence must stay several beats long.
"""

from __future__ import annotations

import math
import os

from flodl_wire import environ
from flodl_wire.faults import Refused

PREFACE = 10.0  # from accept to a finished handshake and hello; a stranger costs no more
HTTP_REQUEST = 5.0
CONNECT_BUDGET = 30.0  # dialling the controller: 60 tries, 0.5 s apart
VERDICT_WAIT = 30.0  # an agent's wait for accept or reject
FORMATION = 60.0  # from WorldFormed to the last relay dialled in
RANKS_READY = 300.0  # from WorldFormed to the last rank's hello: torch and the model load meanwhile
SILENCE = 15.0  # no beat for so long: the host is lost
KEEPER_SILENCE = 10.0  # no word between agent and keeper for so long: the other one ends everything
STANDSTILL = 15.0  # a rank whose training is over is stopped by a signal for so long: it is ended
KILL_GRACE = 5.0  # TERM, then KILL
TERMINAL_SERVE = 5.0  # how long the last state.json is still served after the verdict

BEAT = 1.0  # interval of beats on every link


def parse_scale(text: str | None) -> float:
    """The scale named by the environment, 1.0 when unset. Raises Refused for a value that is not a finite number >=
    0.1.
    """
    if text is None:
        return 1.0
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not math.isfinite(scale) or scale < 0.1:
        raise Refused(
            "bad-timeout-scale",
            f"cannot use {environ.NET_TIMEOUT_SCALE}={text!r}",
            "it must be a finite number, 0.1 or more",
            f"unset it, or set e.g. {environ.NET_TIMEOUT_SCALE}=2 on a slow network",
        )
    return scale


def scale() -> float:
    return parse_scale(os.environ.get(environ.NET_TIMEOUT_SCALE))


def deadline(base: float) -> float:
    """`base` seconds scaled, in whole seconds, at least 1."""
    return float(max(1, math.ceil(base * scale())))


def beat(base: float = BEAT) -> float:
    """The interval of a beat or poll in seconds: scaled down with a small scale, never up."""
    return base * min(1.0, scale())

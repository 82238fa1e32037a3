"""Which role does this process play? Read from the environment, before torch is imported (docs/env.md).

A script may call `dispatch` on its first line; the Trainer calls it too. A script started as launcher, agent or
relay does not come back from it: the process becomes that tool.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import Enum
from typing import NoReturn

from flodl_planes.role import fault_hook, promotion
from flodl_wire import environ, sibling
from flodl_wire.faults import Refused


class Role(Enum):
    """What a process is in a run. `dispatch` returns RANK or ALONE only."""

    LAUNCHER = "launcher"
    AGENT = "agent"
    RELAY = "relay"
    RANK = "rank"
    ALONE = "alone"


# Exactly these sets of role variables mean something; any other mix is an error (a stale export, a shell of a rank).
_ROLES: dict[frozenset[str], Role] = {
    frozenset(): Role.ALONE,
    frozenset({environ.FULL_CLUSTER_JSON}): Role.LAUNCHER,
    frozenset({environ.AGENT_JSON}): Role.AGENT,
    frozenset({environ.RELAY_JSON}): Role.RELAY,
    frozenset({environ.CLUSTER_JSON, environ.LOCAL_RANK}): Role.RANK,
}


def role_of(environment: Mapping[str, str]) -> Role:
    """The role that `environment` names. Raises Refused for a mix, listing each role variable as set or unset."""
    present = frozenset(name for name in environ.ROLE_VARIABLES if name in environment)
    role = _ROLES.get(present)
    if role is None:
        states = ", ".join(f"{name} {'set' if name in present else 'unset'}" for name in environ.ROLE_VARIABLES)
        raise Refused(
            "mixed-roles",
            "cannot tell this process's role in the run",
            f"its environment mixes roles: {states}",
            f"unset {' '.join(sorted(present))} and start again; flodl's tools set them for their own processes",
        )
    return role


def dispatch(*, promote: bool = True, mode: str | None = None) -> Role:
    """Take up this process's role; returns Role.RANK or Role.ALONE, else the process becomes flodl-window,
    flodl-agent or flodl-planes.

    A script run by hand on a box with two or more visible GPUs becomes a cluster of that one host (`promote`). Also
    sets the number of threads torch will use, unless OMP_NUM_THREADS is set: cores / ranks of this host, in a rank.
    `mode` is what the script asks for: the world's mode if nobody else has named one. Raises Refused for a mix of
    roles.
    """
    fault_hook.install()
    role = role_of(os.environ)
    if role is Role.LAUNCHER:
        _launch(mode)
    if role is Role.AGENT:
        become("flodl-agent", ["run", "--", *command()])
    if role is Role.RELAY:
        become("flodl-planes", ["relay"])
    promote = promote and environ.MODEL_SIG_PROBE not in os.environ  # asked only for what its model is
    if role is Role.ALONE and promote and (cluster := promotion.cluster_of_this_box()) is not None:
        if sibling.find("flodl-window") is None or sibling.find("flodl-agent") is None:
            print(
                "flodl: of this box's GPUs only one will train: flodl-window and flodl-agent are not installed\n"
                "fix: pip install flodl-window flodl-agent",
                file=sys.stderr,
            )
        else:
            os.environ[environ.FULL_CLUSTER_JSON] = cluster
            _launch(mode)
    if role is Role.RANK:
        _share_cores()
    return role


def command() -> list[str]:
    """This very process as a command: interpreter, its options, script or -m, arguments."""
    return [sys.executable, *sys.orig_argv[1:]]


def become(program: str, arguments: list[str]) -> NoReturn:
    """Replace this process by a sibling's executable. Raises Refused when it is not installed, naming the package."""
    path = sibling.require(program)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(path, [path, *arguments])


def _launch(mode: str | None) -> NoReturn:
    if mode is not None:
        os.environ.setdefault(environ.MODE, mode)
    become("flodl-window", ["launch", "--", *command()])


def _share_cores() -> None:
    """Ranks of one host share its cores instead of each taking all of them; agents have set this, other starters may
    not have."""
    if "OMP_NUM_THREADS" in os.environ:
        return
    from flodl_planes.role.place import read_envelope

    envelope = read_envelope()
    ranks = len(envelope.worker.ranks) if envelope else 1
    threads = max(1, len(os.sched_getaffinity(0)) // max(1, ranks))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None:  # imported before us: the variable would come too late
        torch.set_num_threads(threads)

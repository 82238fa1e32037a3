"""``flodl-agent run``: be this host's agent for one run."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

import msgspec

from flodl_wire import blob, environ
from flodl_wire.faults import Refused, usage
from flodl_wire.specs import AgentSpec

_MAX_SPEC = 1 << 20  # bytes


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-agent run",
        description="Represent this host in one run: dial the controller, start what it says, tell it how that ends.",
        epilog="The agent's spec comes as one line of JSON on stdin, which then stays open: its end ends everything. With "
        f"{environ.AGENT_JSON} in the environment it comes from there and stdin is left alone. "
        "Exit: 0 every process ended by itself, 1 told to end or link lost.",
    )
    made.add_argument("command", nargs="*", metavar="-- COMMAND", help="what a walk-in runs as each of its ranks")
    return made


def main(argv: list[str] | None = None) -> int:
    own_command = parser().parse_args(argv).command
    from_environment = os.environ.pop(environ.AGENT_JSON, None)  # a role is one process's own
    if from_environment is not None:
        spec = blob.decode(from_environment, AgentSpec, environ.AGENT_JSON)
    else:
        spec = read_spec(0)

    from flodl_agent.hello import check_project, describe
    from flodl_agent.host import Host
    from flodl_agent.offer import find_offers

    manifest_hash = check_project(spec)
    offers = find_offers(spec.local_devices, spec.host)
    hello = describe(spec, offers, manifest_hash, own_command or None)
    finish = asyncio.run(Host(spec, hello, own_command, watch_stdin=from_environment is None).run())
    if finish.text:
        print(f"flodl-agent on {spec.host}: {finish.text}", file=sys.stderr)
    return finish.code


def read_spec(number: int) -> AgentSpec:
    """The first line of descriptor `number`, and not a byte more. Raises Refused."""
    if os.isatty(number):
        raise usage("cannot read the agent's spec from a terminal", "it is one line of JSON, written by the fan-out")
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _MAX_SPEC:
        byte = os.read(number, 1)
        if not byte:
            break
        line += byte
    if not line:
        raise Refused("no-spec", "cannot start", "stdin was closed before the agent's spec came")
    try:
        return msgspec.json.decode(line, type=AgentSpec)
    except msgspec.MsgspecError as err:
        raise Refused("bad-spec", "cannot read the agent's spec on stdin", str(err)) from None

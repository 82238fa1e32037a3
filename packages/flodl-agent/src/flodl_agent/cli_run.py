"""``flodl-agent run``: be this host's agent for one run."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from flodl_agent.spec_line import read_line
from flodl_wire import blob, environ
from flodl_wire.specs import AgentSpec


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-agent run",
        description="Represent this host in one run: dial the controller, start what it says, tell it how that ends.",
        epilog="The agent's spec comes as one line of JSON on stdin, which then stays open: its end ends all. With "
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
        spec = read_line(0, AgentSpec, "the agent's spec")

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

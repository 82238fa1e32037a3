"""``flodl-agent run``: be this host's agent for one run."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from flodl_agent.spec_line import read_line
from flodl_wire import blob, environ, outlets
from flodl_wire.entry_words import split
from flodl_wire.faults import Fault
from flodl_wire.specs import AgentSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flodl_agent.report import Ending


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-agent run",
        description="Represent this host in one run: dial the controller, start what it says, tell it how that ends.",
        epilog="The agent's spec comes as one line of JSON on stdin, which then stays open: its end ends all. With "
        f"{environ.AGENT_JSON} in the environment it comes from there and stdin is left alone. "
        "Exit: 0 every process ended by itself, 1 told to end or link lost.",
    )
    made.add_argument("--json", action="store_true", help="at the end say on stdout, as one JSON document, how it went")
    made.add_argument("command", nargs="*", metavar="-- COMMAND", help="what a walk-in runs as each of its ranks")
    return made


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if not args.json:
        return represent(args.command, as_json=False).code

    import msgspec

    from flodl_agent import report

    try:
        ending = represent(args.command, as_json=True)
    except Fault as fault:
        ending = report.before_dialling(fault)
    outlets.work_is_done()
    print(msgspec.json.encode(ending).decode(), flush=True)
    return ending.code


def represent(command: list[str], *, as_json: bool) -> Ending:
    """One run, from the spec to the goodbye. Raises Fault for what is wrong before anybody is dialled."""
    from_environment = os.environ.pop(environ.AGENT_JSON, None)  # a role is one process's own
    if from_environment is not None:
        spec = blob.decode(from_environment, AgentSpec, environ.AGENT_JSON)
    else:
        spec = read_line(0, AgentSpec, "the agent's spec")
    own = split(command)
    if own.args and spec.args is None:
        spec.args = own.args

    from flodl_agent import site
    from flodl_agent.hello import check_project, describe
    from flodl_agent.host import Host
    from flodl_agent.offer import find_offers
    from flodl_agent.report import Story, speak
    from flodl_agent.torch_fit import check_python
    from flodl_wire import libtorch

    manifest_hash = check_project(spec)
    if note := site.note(spec):  # refused before the hello, not when the world forms
        print(f"flodl-agent: {note}", file=sys.stderr)
    offers = find_offers(spec.local_devices, spec.host)
    variant = libtorch.chosen(spec.libtorch, Path(spec.path).expanduser() if spec.path else None)
    check_python(variant, own.program)
    story = Story((lambda line: None) if spec.roster_host else speak(spec.host))
    hello = describe(spec, offers, manifest_hash, variant)
    host = Host(spec, hello, own.program, story, watch_stdin=from_environment is None, variant=variant)
    finish = asyncio.run(host.run())
    if finish.text and not as_json:
        print(f"flodl-agent on {spec.host}: {finish.text}", file=sys.stderr)
    return story.own_ending(finish) if as_json else story.ending(finish)

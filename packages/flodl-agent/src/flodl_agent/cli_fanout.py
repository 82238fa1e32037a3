"""``flodl-agent fanout``: start an agent on every host of a roster."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal

from flodl_agent.fanout import Fanout, LineWriter
from flodl_agent.spec_line import read_line
from flodl_wire import exits
from flodl_wire.specs import FanoutSpec


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="flodl-agent fanout",
        description="Start an agent on every host of a roster: here directly, elsewhere over ssh.",
        epilog="The roster comes as one line of JSON on stdin, which then stays open: its end ends all. Events go to "
        "stdout, one JSON object a line. Exit: 0 when every agent exited 0, else 1.",
    )


def main(argv: list[str] | None = None) -> int:
    parser().parse_args(argv)
    spec = read_line(0, FanoutSpec, "the roster")
    return exits.DONE if asyncio.run(_run(spec)) else exits.NOT_DONE


async def _run(spec: FanoutSpec) -> bool:
    loop = asyncio.get_running_loop()
    fanout = Fanout(spec, LineWriter(lambda: fanout.end()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, fanout.end)

    def listen() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            fanout.end()

    try:
        loop.add_reader(0, listen)
    except PermissionError:  # a file: its end has been reached in any case
        loop.call_soon(fanout.end)
    return await fanout.run()

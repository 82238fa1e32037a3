"""``flodl-window launch``: open the window, start the roster's agents, run the command on every rank."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from flodl_wire import environ, outlets
from flodl_wire.faults import Fault, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "flodl-window launch"


def parser(prog: str = PROGRAM, *, fanout: bool = True) -> argparse.ArgumentParser:
    starts = "starts an agent on each host of the roster" if fanout else "lets agents dial in by themselves"
    made = argparse.ArgumentParser(
        prog=prog,
        description=f"Opens the window on the controller's port, {starts}, runs CMD on every rank, says how it went.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted. Files: runs/<run>/ (runs/latest: the last).",
    )
    made.add_argument(
        "--config",
        metavar="FILE",
        help="JSON with the cluster block (- for stdin)",
    )
    made.add_argument(
        "--mode",
        metavar="MODE",
        help="how ranks average: cpu_sync, cpu_cadence, cpu_async, nccl_sync, nccl_cadence, torch "
        "(default: nccl_cadence where every rank has a GPU, else cpu_cadence)",
    )
    made.add_argument("--port", type=int, metavar="N", help="listen here instead of on controller.port")
    made.add_argument("command", nargs="*", metavar="CMD", help="-- and the command of every rank, untouched")
    return made


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words and, behind the first ``--``, the command; nothing behind it is ever ours."""
    words = list(argv)
    if "--" in words:
        at = words.index("--")
        return words[:at], words[at + 1 :]
    return words, []


def main(argv: list[str] | None = None, *, prog: str = PROGRAM, fanout: bool = True) -> int:
    ours, command = split(sys.argv[1:] if argv is None else argv)
    args = parser(prog, fanout=fanout).parse_args(ours)
    command = [*args.command, *command]
    if not command:
        raise usage(
            "cannot launch nothing", "no command follows --", f"e.g. {prog} --config cluster.json -- python train.py"
        )
    if args.port is not None and not 1 <= args.port <= 65535:
        raise usage(f"cannot use --port {args.port}", "it is no TCP port", "use 1 to 65535")
    return launch(args.config, args.mode, args.port, command, fanout=fanout)


def launch(config: str | None, mode: str | None, port: int | None, command: list[str], *, fanout: bool) -> int:
    """Everything that can be refused first, then the run."""
    from flodl_window import modes
    from flodl_window import settings as read
    from flodl_window.console import Console
    from flodl_window.launcher import Launcher
    from flodl_window.live import binding
    from flodl_window.narration import Narration
    from flodl_window.port import bind, bind_or_another
    from flodl_window.roster import LOOPBACK_NAMES
    from flodl_window.run_dir import RunDir, new_id, runs_folder
    from flodl_window.siblings import Tools
    from flodl_wire import checkpoints

    wanted = os.environ.get(environ.DASHBOARD_BIND)
    page_at = binding.parse(wanted) if wanted else None
    given = read.read_config(config)
    settings = read.settle(given, mode, command, fanout=fanout)
    if settings.mode != modes.TORCH:  # the coordinator would say the same, when every rank has loaded
        checkpoints.check(os.environ.get(environ.RESUME, ""), runs_folder())
    run = new_id()
    controller = settings.cluster.controller
    loopback = settings.loopback_only or controller.host in LOOPBACK_NAMES
    charter = read.charter(settings, run, port or controller.port, loopback)
    tools = Tools.find(fanout=charter.fanout)
    if given.any_port and loopback and port is None:
        bound = bind_or_another(controller.host, controller.port)
    else:
        bound = bind(controller.host, port or controller.port, loopback=loopback)
    charter.controller_port = bound.port
    run_dir = RunDir.create(run)
    narration = Narration(Console())
    for note in [*settings.notes, *filter(None, [run_dir.note])]:
        narration.say(note)
    try:
        code = asyncio.run(Launcher(charter, bound, run_dir, narration, tools, page_at=page_at).run())
    except Fault:
        narration.close()
        raise
    outlets.work_is_done()
    # A reader that stands still must not keep the process: the interpreter would flush its stream once more.
    if narration.stuck:
        os._exit(code)
    return code

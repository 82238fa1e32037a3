"""``flodl-agent join``: offer this box to a run whose window is open."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from flodl_wire import deadlines, environ, exits
from flodl_wire.faults import Fault, Refused, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from flodl_agent.join_recipe import Recipe

PROGRAM = "flodl-agent join"


class Parser(argparse.ArgumentParser):
    """Says what was mistyped in two lines, and what was meant."""

    def error(self, message: str) -> NoReturn:
        from difflib import get_close_matches

        word = message.partition("unrecognized arguments: ")[2].split(" ")[0].partition("=")[0]
        near = get_close_matches(word, self._option_string_actions, 1, 0.7) if word.startswith("-") else []
        raise usage("cannot join", f"{message}; did you mean {near[0]}?" if near else message, f"{PROGRAM} --help")


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog=PROGRAM,
        description="Walk in: dial the window of a run, offer this box's devices, train until the run is over. "
        "Every option defaults to its key in the join: block of fdl.yml.",
        epilog="Exit: 0 this host's part ended well, 1 it did not (worth dialling again), 2 a flaw of this box (it is "
        "not). Without --persist the agent's own code is passed through.",
        allow_abbrev=False,
    )
    made.add_argument("controller", nargs="?", metavar="HOST[:PORT]", help="the controller; with --ssh as seen there")
    made.add_argument("--ssh", metavar="[USER@]HOST[:PORT]", help="go through this sshd (default HOST: 127.0.0.1)")
    made.add_argument("--identity", metavar="FILE", help="the key for --ssh, --source and --data-source")
    made.add_argument("--token", metavar="HEX|@FILE", help="the run's token; @FILE keeps it out of `ps`")
    made.add_argument("--bin", metavar="LINE", help="the program, from the project's folder: train.py, python -m x")
    made.add_argument(
        "--source", metavar="SPEC", help="pull the program: rsync://…:/tree, file:///abs, git+https://…#ref"
    )
    made.add_argument("--source-cwd", metavar="DIR", help="its folder in there; a published run says that itself")
    made.add_argument("--source-build", metavar="LINE", help="its build, a shell line (likewise)")
    made.add_argument("--source-bin", metavar="FILE", help="what to run, relative to its folder (likewise)")
    made.add_argument("--libtorch", metavar="VARIANT", help="auto, cpu, cu128 …: fetched when missing (the active one)")
    made.add_argument("--host", metavar="NAME", help="this box's name in the run (default: FLODL_HOST_NAME, its own)")
    made.add_argument("--devices", metavar="LIST", help="all (every GPU; the default), 0,1 or cpu:2")
    made.add_argument("--data-path", metavar="DIR", help="the data's folder on this box")
    made.add_argument(
        "--data-source", metavar="SPEC", help="mount it there, read-only: sshfs://[user@]host[:port]:/abs"
    )
    made.add_argument("--gpu-ram-share", type=float, metavar="X", help="share of memory an integrated GPU may take")
    made.add_argument("--no-sig-probe", action="store_true", help="do not ask the program for its model first")
    made.add_argument("--persist", action="store_true", help="dial again, for ever: 5 s, doubling to 60 s")
    made.add_argument("--try", action="store_true", dest="rehearse", help="rehearse: every check, then leave uncounted")
    made.add_argument("--json", action="store_true", help="with --try: the report as JSON")
    made.add_argument("--config", metavar="FILE", help="JSON with a join block (- for stdin); fdl hands over its own")
    made.add_argument("args", nargs="*", metavar="-- ARGS", help="the program's arguments; they must be the run's")
    return made


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    tail = words[words.index("--") + 1 :] if "--" in words else None
    flags = parser().parse_args(words[: words.index("--")] if "--" in words else words)
    if flags.args:
        what = f"cannot read {' '.join(flags.args)!r}"
        raise usage(what, "one controller is all that stands before --", "put the program's arguments behind --")
    if flags.json and not flags.rehearse:
        raise usage("cannot use --json", "it is the form of a rehearsal's report", "add --try")
    try:
        recipe, scale = read(flags, tail), deadlines.scale()
    except Fault as fault:
        fault.exit_code = exits.USAGE  # a flaw of this box's own config: systemd must not start us again
        raise
    if flags.rehearse:
        from flodl_agent.rehearsal_report import rehearse

        return rehearse(recipe, as_json=flags.json)
    return take_part(recipe, scale)


def read(flags: argparse.Namespace, tail: list[str] | None) -> Recipe:
    """The recipe, from flags, block and environment. Raises Refused."""
    from flodl_agent.join_recipe import settle
    from flodl_wire.join_block import parse_join

    document = config(flags.config)
    if flags.token is not None and flags.token.startswith("@"):
        flags.token = secret(flags.token[1:])
    manifest = document.get("manifest")
    folder = str(Path(manifest).parent) if isinstance(manifest, str) else str(Path.cwd())
    name = os.environ.get(environ.HOST_NAME) or socket.gethostname()
    return settle(flags, tail, parse_join(document.get("join")), name, folder)


def config(file: str | None) -> dict[str, Any]:
    """What fdl handed over, or the document in `file`. Raises Refused."""
    import json

    text = os.environ.pop(environ.CONFIG_JSON, None)  # it may hold a token, and a role is one process's own
    what = f"cannot read --config {file}" if file else f"cannot read {environ.CONFIG_JSON}"
    try:
        if file is not None:
            found = json.loads(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
        else:
            found = json.loads(bytes.fromhex(text)) if text else {}
    except OSError as err:
        raise Refused("no-config", what, err.strerror or str(err)) from None
    except ValueError as err:
        raise Refused("bad-config", what, f"it is no JSON: {err}") from None
    if not isinstance(found, dict):
        raise Refused("bad-config", what, "it is no block of keys")
    return found


def secret(file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="ascii", errors="replace").strip()
    except OSError as err:
        fix = "name a file that holds the token and that you may read"
        raise Refused("no-token", f"cannot read --token @{file}", err.strerror or str(err), fix) from None


def take_part(recipe: Recipe, scale: float) -> int:
    """Attempt after attempt, until the back-off says stop."""
    from flodl_agent.join_attempt import Told, attempt, on_signal
    from flodl_agent.persist import Lines, Persist, Stop
    from flodl_agent.preparation import Preparation
    from flodl_agent.report import speak

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    say = speak(recipe.host)
    machine, lines = Persist(persist=recipe.persist, scale=scale), Lines()
    try:
        with Preparation(recipe, say) as preparation:
            while True:
                came_to = attempt(preparation, machine.finished)
                decision = machine.ended(came_to)
                if line := lines.after(came_to, decision):
                    say(line)
                if isinstance(decision, Stop):
                    return decision.code
                threading.Event().wait(decision.after)
    except Told as told:
        signal.signal(told.number, signal.SIG_DFL)  # die of it: systemd takes an exit code for a failure
        os.kill(os.getpid(), told.number)
        return exits.NOT_DONE

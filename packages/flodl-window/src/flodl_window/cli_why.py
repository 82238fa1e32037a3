"""``flodl-window why``: what broke first in a run, who said what last, what to try."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from flodl_wire import exits, outlets

PROGRAM = "flodl-window why"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="What broke first in a run, in the order of causes and not of clocks; what to try; what the ranks "
        "said last, the culprit's words first; versions and settings that matter.",
        epilog="Exit codes: 0 told, 1 there is no such run, 2 usage.",
    )
    made.add_argument(
        "run", nargs="?", default="latest", metavar="RUN", help="its id, the beginning of it, or its folder (latest)"
    )
    made.add_argument("--json", action="store_true", help="one document on stdout")
    made.add_argument(
        "--bundle",
        metavar="FILE.tar.gz",
        help="pack logs, state, config and versions for somebody who helps, without anything secret",
    )
    return made


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    from flodl_window.aftermath import account, run_files, why_text

    path = run_files.find(args.run)
    files = run_files.read(path)
    told = account.make(files, lambda name: run_files.last_lines(path / "log" / f"{name}.log", account.LINES))
    if args.bundle is not None:
        from flodl_window.aftermath.bundle import pack, shown

        packed = pack(files, told, Path(args.bundle))
        outlets.work_is_done()
        if args.json:
            print(json.dumps(packed))
        else:
            sys.stdout.write(shown(packed))
        return exits.DONE
    if args.json:
        print(json.dumps(account.document(told)))
    else:
        sys.stdout.write(why_text.render(told))
    return exits.DONE

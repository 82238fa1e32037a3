"""``flodl-window runs``: what the project has run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from flodl_wire import exits

PROGRAM = "flodl-window runs"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="What the project has run, newest first: how each run ended, how long it took, samples per second, "
        "its last loss and metrics. Scripts run alone are in it, too.",
        epilog="Exit codes: 0 told, 2 usage.",
    )
    made.add_argument("folders", nargs="*", metavar="FOLDER", help="runs/ folders to look in (the project's)")
    made.add_argument("-n", type=int, metavar="N", help="the last N only")
    made.add_argument("--json", action="store_true", help="one document on stdout")
    return made


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    from flodl_window.aftermath import listing, run_files

    where = [_runs_in(Path(folder).absolute()) for folder in args.folders] or None
    folders = run_files.folders(where)
    rows = [listing.of(run_files.read(path)) for path in folders[: args.n]]
    if args.json:
        print(json.dumps(listing.document(rows)))
    else:
        sys.stdout.write(listing.render(rows, _width()))
    return exits.DONE


def _runs_in(folder: Path) -> Path:
    """The runs/ of a project's folder, or the folder itself."""
    return folder / "runs" if folder.name != "runs" and (folder / "runs").is_dir() else folder


def _width() -> int | None:
    """Of the terminal; None where stdout is none, so that a pipe gets everything."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None
    except (OSError, ValueError):
        return None

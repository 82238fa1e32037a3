"""``flodl-window report``: a run as one file for a browser."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from flodl_wire import exits, outlets
from flodl_wire.faults import Refused

PROGRAM = "flodl-window report"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Write a run's report: what ran where, with which code and settings, curves, every rank, the cause "
        "of a failure. One file that a browser shows without a network. A cluster run writes its own at the end.",
        epilog="Exit codes: 0 written, 1 there is no such run or it cannot be written, 2 usage.",
    )
    made.add_argument(
        "run", nargs="?", default="latest", metavar="RUN", help="its id, the beginning of it, or its folder (latest)"
    )
    made.add_argument("-o", "--output", metavar="FILE", help="write it there (report.html in the run's folder)")
    made.add_argument(
        "--tensorboard", action="store_true", help="write its curves for TensorBoard, too (tensorboard/ beside it)"
    )
    made.add_argument("--json", action="store_true", help="one document on stdout")
    return made


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    from flodl_window.aftermath import report, run_files

    path = run_files.find(args.run)
    target = Path(args.output).expanduser().absolute() if args.output else None
    if target is not None and target.is_dir():
        raise Refused("bad-target", f"cannot write {target}", "it is a folder", "name a file in it: …/report.html")
    written = report.write(path, target)
    told: dict[str, object] = {"v": 1, "run": path.name, "file": str(written)}
    lines = [str(written)]
    if args.tensorboard:
        from flodl_window.aftermath import figures, tensorboard_files

        files = run_files.read(path)
        drawn = figures.document(run_files.history(path), run_files.metrics(path), files.result)
        folder = written.parent / tensorboard_files.NAME
        told["scalars"] = tensorboard_files.write(drawn, folder)
        told["tensorboard"] = str(folder)
        lines.append(str(folder))
    outlets.work_is_done()
    print(json.dumps(told) if args.json else "\n".join(lines))
    return exits.DONE

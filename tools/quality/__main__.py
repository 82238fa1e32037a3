"""Every mode, wire type and outer optimizer against one rank alone on the same number of samples, seed by seed.

Writes the tables of docs/quality.md. Exit code 1 when one of them is behind by more than the spread of one rank alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tools.bench.disturbance import DISTURBED, Disturbance
from tools.forked_world import warm_up
from tools.quality import page
from tools.quality.contenders import ALONE, CONTENDERS, SLOW, WORKS
from tools.quality.runs import append, run

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quality.md"
KEPT = ROOT / "build" / "quality" / "runs.jsonl"


def measure(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """All runs, a seed at a time, so that an interrupted call leaves whole pairs; `rows` grows."""
    have = {(row["work"], row["contender"], row["seed"]) for row in rows}
    for work in WORKS:
        if not chosen(work.name, options.works):
            continue
        for seed in range(options.seeds or work.seeds):
            for contender in CONTENDERS:
                wanted = contender.name == ALONE or chosen(contender.name, options.only)
                if not (wanted and contender.on(work)) or (work.name, contender.name, seed) in have:
                    continue
                began, disturbance = time.monotonic(), Disturbance()
                row = {**run(work, contender, seed), "others": disturbance.share()}
                rows.append(row)
                append(row, KEPT)
                took = time.monotonic() - began
                ends = ", ".join(f"{name} {value:.4f}" for name, value in row["metrics"].items())
                print(f"{work.name} {contender.name}, seed {seed}: {ends}  ({took:.0f} s)", flush=True)


def chosen(name: str, parts: str) -> bool:
    return any(part in name for part in parts.split(","))


def circumstances(rows: Sequence[dict[str, Any]]) -> str:
    """Date, versions and kind of machine, in words."""
    others = statistics.median(row["others"] for row in rows)
    today = datetime.now(timezone.utc).date().isoformat()
    busy = f" Other work took {others:.0%} of the machine meanwhile." if others > DISTURBED else ""
    return (
        f"Measured {today} by `make quality`: torch {torch.__version__}, numpy {np.__version__}, Python"
        f" {platform.python_version()}, {platform.machine()}, {os.cpu_count()} processor cores, one thread per rank;"
        f" worlds of two ranks, rank {SLOW.replace(':', ' taking ')} times as long for each step.{busy}"
    )


def check_samples(rows: list[dict[str, Any]]) -> None:
    """Everybody has learned from equally many. Raises RuntimeError."""
    for work in WORKS:
        for contender in CONTENDERS:
            samples = work.samples * work.epochs * contender.epochs
            mine = [row for row in rows if (row["work"], row["contender"]) == (work.name, contender.name)]
            if odd := [row for row in mine if row["samples"] != samples]:
                raise RuntimeError(f"{work.name}, {contender.name}: not {samples} samples but {odd[0]['samples']}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.quality", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=0, help="of each work; as many as it wants if omitted")
    parser.add_argument("--works", default="", help="parts of works' names, comma separated")
    parser.add_argument("--only", default="", help="parts of contenders' names, comma separated")
    parser.add_argument(
        "--page", type=Path, default=PAGE, help="where the tables are written; docs/quality.md if omitted"
    )
    parser.add_argument("--go-on", action="store_true", help="keep the runs that an interrupted call has made")
    options = parser.parse_args(argv)
    if not options.go_on:
        KEPT.unlink(missing_ok=True)
    rows = [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []
    warm_up()
    measure(options, rows)
    check_samples(rows)
    text = page.measured(rows, circumstances(rows))
    print(text)
    options.page.write_text(page.with_measured(options.page.read_text(), text))
    behind = [
        f"{work.name}, {metric.name}: {each.contender.name}"
        for work in WORKS
        for metric in work.metrics
        for each in page.pairings(rows, work, metric)
        if not each.kept
    ]
    if behind:
        print(f"behind by more than the spread of one rank alone: {'; '.join(behind)}", file=sys.stderr)
    return 1 if behind else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""One run of an example, alone or in a world: the numbers it ended with.

The example's own main() runs, unchanged; only some names in it stand for something smaller, or with more arguments
(smaller.py).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from tools.forked_world import ForkedWorld, fork
from tools.quality import smaller
from tools.quality.contenders import SLOW, Contender, Work

from flodl_wire.result import RunResult

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
Row = dict[str, Any]


def run(work: Work, contender: Contender, seed: int) -> Row:
    """A row: the metrics after the last epoch, and what it took. Raises RuntimeError when the run fails."""

    def script() -> None:
        sys.path.insert(0, str(EXAMPLES / work.example))
        example = importlib.import_module("train")
        changed = {"scheduler": partial(falling, contender.steps(work)), **contender.trainer}
        smaller.make(example, work, changed)
        sys.argv = ["train.py", *contender.arguments(work), "--seed", str(seed)]
        if contender.hosts:
            sys.argv += ["--slow", SLOW]
        example.main()

    with tempfile.TemporaryDirectory(prefix="flodl-q-") as name:
        folder = Path(name)
        if contender.hosts:
            result = ForkedWorld(folder, contender.mode, contender.ranks()).run(partial(inside, folder, script)).result
        else:
            result = alone(script, folder)
    curve = [epoch.eval for epoch in result.epochs if epoch.eval]
    if result.verdict != "done" or len(curve) < work.epochs * contender.epochs:
        raise RuntimeError(f"{contender.name}, seed {seed}: {result}")
    return {
        "work": work.name, "contender": contender.name, "seed": seed, "metrics": curve[-1], "curve": curve,
        "samples": result.samples, "rounds": result.rounds, "wall_s": result.wall_s, "balance": result.balance,
    }  # fmt: skip


def falling(steps: int, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """The learning rate falls to 0 in a straight line, as trainings end; else a last epoch is as good as its luck."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))


def inside(folder: Path, script: Callable[[], None]) -> None:
    """`script`, and what it leaves in its working directory stays in `folder`."""
    os.chdir(folder)
    script()


def alone(script: Callable[[], None], folder: Path) -> RunResult:
    """In a process that belongs to no world."""
    child = fork(partial(inside, folder, script), folder, "alone")
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"the run alone failed:\n{(folder / 'alone.log').read_text()[-2000:]}")
    return msgspec.json.decode((folder / "runs" / "latest" / "result.json").read_bytes(), type=RunResult)


def append(row: Row, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")

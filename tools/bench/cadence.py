"""Uneven ranks under `cpu_cadence` against DDP on the same work, and against the same ranks run alone.

    python -m tools.bench.cadence [--quick] [--cases NAME,…]

Two CPU ranks train an example of docs/examples; rank 1 sleeps after each step until it has taken 2.5 or 4 times as
long. What takes turns, a few times each:

- *ours*: `fdl` trains it on both; samples per second from result.json (first batch to last average).
- *DDP*: the example's own main() with DistributedDataParallel on gloo in the Trainer's place. Its rate is steady from
  the first step, so it is given some seconds of the work and not all of it. Each step waits for the slow rank.
- *alone*: the example's own main() with the Trainer, no world, first the fast rank, then the slow one. The sum of their
  rates is what the ranks can do at best, and **efficiency** is ours over that sum.
- *at once*: the same two, alone, at the same time: what this box can give two processes that share its memory, its
  caches and its clock. Not the promise; it tells how much of a loss is the box's.
- *plain*: the fast rank with a loop of torch's own, for what the Trainer costs per batch.

Everything is counted over the same epochs: n samples per epoch, E - 1 evaluations in E epochs (the last one comes
behind the last average). Every process has one thread, so that two ranks on two cores do not fight.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from tools.bench.disturbance import DISTURBED, Disturbance
from tools.bench.rows import ROOT, report, row

BIN = Path(sys.executable).parent
EXAMPLES = ROOT / "docs" / "examples"
WORKER = Path(__file__).resolve().parent / "peers" / "example_worker.py"
PROMISE = 0.90
FACTORS = (2.5, 4.0)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Work:
    """An example, its arguments, how many epochs ours trains, samples per step and rank."""

    example: str
    argv: tuple[str, ...]
    epochs: int
    batch: int = 16


WORKS = [
    Work("digits", (), 8),
    Work("charlm", ("--kilobytes", "250"), 2),
]


@dataclass(frozen=True)
class Effort:
    """How often all take turns; seconds of each measurement of a peer."""

    times: int
    seconds: float


@dataclass(frozen=True)
class Turn:
    """Samples per second of everybody, taken one after the other. `run`: ours, as result.json has it."""

    run: dict[str, Any]
    ddp: float
    fast: float
    slow: float
    at_once: float
    plain: float
    others: float  # share of this box that other processes took meanwhile

    @property
    def ours(self) -> float:
        return float(self.run["samples_per_s"])

    def line(self, work: Work, factor: float) -> str:
        run = self.run
        return (
            f"  {work.example} {factor:g}:1  ours {self.ours:.0f}/s in {run['wall_s']:.1f} s"
            f" (balance {run['balance']:.3f}, {run['rounds']} rounds)  DDP {self.ddp:.0f}/s"
            f"  alone {self.fast:.0f} + {self.slow:.0f}/s  at once {self.at_once:.0f}/s  plain {self.plain:.0f}/s"
            f"{f'  (others took {self.others:.0%} of the box)' if self.others > DISTURBED else ''}"
        )


class Workers:
    """The two resident processes: rank 0 the fast one, rank 1 the slow one. A context manager."""

    def __init__(self, work: Work, folder: Path) -> None:
        self._work = work
        self._errors: list[IO[str]] = []
        self._processes: list[subprocess.Popen[str]] = []
        for rank in (0, 1):
            errors = (folder / f"worker-{rank}.err").open("w+")
            self._errors.append(errors)
            process = subprocess.Popen(
                [sys.executable, WORKER, EXAMPLES / work.example, str(rank), "2"],
                cwd=folder, env=environment(), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
            self._processes.append(process)
        self._write(1, self._line(0).strip())
        for rank in (0, 1):
            self._line(rank)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for errors in self._errors:
            errors.close()

    def rate(self, ranks: Sequence[int], factor: float, **order: Any) -> float:
        """Samples per second of `ranks` together, evaluations counted in. `order`: kind, and seconds or steps."""
        for rank in ranks:
            slow = factor if rank else 1.0
            self._write(rank, json.dumps({"argv": self._work.argv, "slow": slow, **order}))
        told = [json.loads(self._line(rank)) for rank in ranks]
        if order["kind"] == "ddp":
            # one world: the ranks' samples in the time of the last; one evaluation per epoch, as ours has it
            samples, seconds = sum(each["samples"] for each in told), max(each["train_s"] for each in told)
            return self._over_epochs(samples / seconds, told[0])
        return sum(self._over_epochs(each["samples"] / each["train_s"], each) for each in told)

    def _over_epochs(self, rate: float, told: dict[str, Any]) -> float:
        epochs, samples = self._work.epochs, told["dataset"]
        return float(epochs * samples / (epochs * samples / rate + (epochs - 1) * told["evaluate_s"]))

    def _write(self, rank: int, line: str) -> None:
        pipe = self._processes[rank].stdin
        assert pipe is not None
        pipe.write(line + "\n")
        pipe.flush()

    def _line(self, rank: int) -> str:
        pipe = self._processes[rank].stdout
        assert pipe is not None
        text = pipe.readline()
        if not text:
            self._errors[rank].seek(0)
            raise RuntimeError(f"the worker ended:\n{self._errors[rank].read()[-2000:]}")
        return text


def environment() -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FDL_", "FLODL_"))}
    return clean | ONE_THREAD | {"PATH": f"{BIN}:{clean['PATH']}"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def write_project(work: Work, folder: Path) -> None:
    """An fdl.yml whose command is the example where it lies, and an overlay with a free port."""
    command = {"run": f"python {EXAMPLES / work.example / 'train.py'}", "cluster": True, "mode": "cpu_cadence"}
    (folder / "fdl.yml").write_text(json.dumps({"commands": {"go": {**command, "env": ONE_THREAD}}}))
    here = {"host": socket.gethostname(), "local_devices": "cpu:2", "path": str(folder)}
    controller = {"host": "127.0.0.1", "port": free_port(), "path": str(folder)}
    (folder / "fdl.box.yml").write_text(json.dumps({"cluster": {"controller": controller, "workers": [here]}}))


def ours(work: Work, factor: float, folder: Path) -> dict[str, Any]:
    """result.json of one whole run."""
    argv = [*work.argv, "--epochs", str(work.epochs), "--slow", f"1:{factor}"]
    done = subprocess.run(
        [BIN / "fdl", "@box", "go", *argv], cwd=folder, env=environment(), text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"fdl: exit {done.returncode}\n{done.stdout[-3000:]}")
    result: dict[str, Any] = json.loads((folder / "runs" / "latest" / "result.json").read_text())
    return result


def take_turns(work: Work, effort: Effort, workers: Workers, factor: float, steps: int, folder: Path) -> Turn:
    def alone(*ranks: int, kind: str = "alone") -> float:
        return workers.rate(ranks, factor, kind=kind, seconds=effort.seconds)

    disturbance = Disturbance(workers.pids)
    return Turn(
        run=ours(work, factor, folder),
        ddp=workers.rate((0, 1), factor, kind="ddp", steps=steps),
        fast=alone(0),
        slow=alone(1),
        at_once=alone(0, 1),
        plain=alone(0, kind="plain"),
        others=disturbance.share(),
    )


def measure(work: Work, effort: Effort) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="flodl-bench-") as name:
        folder = Path(name)
        write_project(work, folder)
        with Workers(work, folder) as workers:
            plain: list[float] = []
            fast: list[float] = []
            for factor in FACTORS:
                tried = workers.rate((0, 1), factor, kind="ddp", steps=10)
                steps = max(10, round(effort.seconds * tried / (2 * work.batch)))
                turns = []
                for _ in range(effort.times):
                    turns.append(take_turns(work, effort, workers, factor, steps, folder))
                    print(turns[-1].line(work, factor), flush=True)
                fast += [turn.fast for turn in turns]
                plain += [turn.plain for turn in turns]
                rows += rows_of(f"{work.example} {factor:g}:1", turns)
            ratio = statistics.median(a / b for a, b in zip(fast, plain, strict=True))
            rows.append(
                row(
                    f"{work.example}, the Trainer alone against a plain loop",
                    statistics.median(fast),
                    statistics.median(plain),
                    ratio,
                    unit="/s",
                )
            )
    return rows


def rows_of(case: str, turns: Sequence[Turn]) -> list[dict[str, Any]]:
    median = statistics.median
    middle = sorted(turns, key=lambda turn: turn.ours)[len(turns) // 2].run
    figures = {name: middle[name] for name in ("balance", "sync_share", "rounds", "wall_s", "samples")}
    figures |= {"eval": middle["epochs"][-1]["eval"], "times": len(turns), "unit": "/s", "threads_per_rank": 1}
    figures["others"] = round(median(turn.others for turn in turns), 3)

    def against(name: str, peer: Callable[[Turn], float], **more: Any) -> dict[str, Any]:
        ratio = median(turn.ours / peer(turn) for turn in turns)
        mine = median(turn.ours for turn in turns)
        return row(f"{case}, {name}", mine, median(map(peer, turns)), ratio, **figures, **more)

    return [
        against("against DDP", lambda turn: turn.ddp, at_least=1.0),
        against("EFFICIENCY (sum of alone)", lambda turn: turn.fast + turn.slow, at_least=PROMISE),
        against("sum of alone, both at once", lambda turn: turn.at_once),
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="once each, two epochs, a second per measurement")
    parser.add_argument("--cases", default="", help="parts of the examples' names, comma separated")
    options = parser.parse_args(argv)
    effort = Effort(times=1, seconds=1.0) if options.quick else Effort(times=3, seconds=2.5)
    rows = []
    for work in WORKS:
        if any(part in work.example for part in options.cases.split(",")):
            rows += measure(replace(work, epochs=2) if options.quick else work, effort)
    kept = report("cadence", rows)
    others = max((each["others"] for each in rows if "others" in each), default=0.0)
    if others > DISTURBED:
        print(f"others took {others:.0%} of this box meanwhile: these figures say little; run it on an idle one")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())

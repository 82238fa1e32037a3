"""Uneven ranks under `cpu_cadence` and `cpu_async` against DDP on the same work, and against the same ranks run alone.

    python -m tools.bench.cadence [--quick] [--cases NAME,…]

Two or three CPU ranks train an example of docs/examples; all but rank 0 sleep after each step until it has lasted 2.5
times the processor time that it needs, or 4, or 2 and 4 (slow.py). What takes turns, a few times each:

- *ours*: `fdl` trains it on all, in each of the two modes; samples per second from result.json (first batch to last
  average).
- *DDP*: the example's own main() with DistributedDataParallel on gloo in the Trainer's place. Its rate is steady from
  the first step, so it is given some seconds of the work and not all of it. Each step waits for the slow rank.
- *alone*: the example's own main() with the Trainer, no world, one rank after the other. The sum of their rates is what
  the ranks can do at best, and **efficiency** is ours over that sum.
- *at once*: the same ranks, alone, at the same time: what this box can give processes that share its memory, its
  caches and its clock. Not the promise; it tells how much of a loss is the box's.
- *plain*: the fast rank with a loop of torch's own, for what the Trainer costs per batch.

Everything is counted over the same epochs: n samples per epoch, E - 1 evaluations in E epochs (the last one comes
behind the last average). Only steps are slowed; a box that is 2.5 times as slow would evaluate as slowly too, so alone
its evaluations are counted as that long. Ours evaluates on the fastest rank. Every process has one thread, so that
ranks do not fight: 1:2:4 is busy on 1.75 cores.
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
PROMISE = 0.95
FACTORS = ((1.0, 2.5), (1.0, 4.0), (1.0, 2.0, 4.0))  # how much slower each rank is than the first
MODES = ("cpu_cadence", "cpu_async")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Work:
    """An example, its arguments, how many epochs ours trains, samples per step and rank."""

    example: str
    argv: tuple[str, ...]
    epochs: int
    batch: int = 16


WORKS = [
    Work("digits", (), 24),
    Work("charlm", (), 2),
]


@dataclass(frozen=True)
class Effort:
    """How often all take turns; seconds of each measurement of a peer."""

    times: int
    seconds: float


@dataclass(frozen=True)
class Turn:
    """Samples per second of everybody, taken one after the other. `runs`: ours by mode, as result.json has them;
    `alone`: each rank by itself.
    """

    runs: dict[str, dict[str, Any]]
    ddp: float
    alone: list[float]
    at_once: float
    plain: float
    others: float  # share of this box that other processes took meanwhile

    def ours(self, mode: str) -> float:
        return float(self.runs[mode]["samples_per_s"])

    def line(self, work: Work, factors: Sequence[float]) -> str:
        ours = "  ".join(
            f"{mode} {self.ours(mode):.0f}/s in {run['wall_s']:.1f} s (balance {run['balance']:.3f}, "
            f"{run['rounds']} rounds)"
            for mode, run in self.runs.items()
        )
        return (
            f"  {work.example} {ratio(factors)}  {ours}  DDP {self.ddp:.0f}/s"
            f"  alone {' + '.join(f'{rate:.0f}' for rate in self.alone)}/s  at once {self.at_once:.0f}/s"
            f"  plain {self.plain:.0f}/s"
            f"{f'  (others took {self.others:.0%} of the box)' if self.others > DISTURBED else ''}"
        )


def ratio(factors: Sequence[float]) -> str:
    """`2.5:1`, or `1:2:4`."""
    return f"{factors[1]:g}:1" if len(factors) == 2 else ":".join(f"{factor:g}" for factor in factors)


class Workers:
    """Resident processes, one per rank. A context manager."""

    def __init__(self, work: Work, factors: Sequence[float], folder: Path) -> None:
        self._work = work
        self._factors = factors
        self.ranks = range(len(factors))
        self._errors: list[IO[str]] = []
        self._processes: list[subprocess.Popen[str]] = []
        for rank in self.ranks:
            errors = (folder / f"worker-{rank}.err").open("w+")
            self._errors.append(errors)
            process = subprocess.Popen(
                [sys.executable, WORKER, EXAMPLES / work.example, str(rank), str(len(factors))],
                cwd=folder, env=environment(), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
            self._processes.append(process)
        port = self._line(0).strip()
        for rank in self.ranks[1:]:
            self._write(rank, port)
        for rank in self.ranks:
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

    def rate(self, ranks: Sequence[int], **order: Any) -> float:
        """Samples per second of `ranks` together, evaluations counted in. `order`: kind, and seconds or steps."""
        for rank in ranks:
            self._write(rank, json.dumps({"argv": self._work.argv, "slow": self._factors[rank], **order}))
        told = [json.loads(self._line(rank)) for rank in ranks]
        if order["kind"] == "ddp":
            # one world: the ranks' samples in the time of the last; one evaluation per epoch, as ours has it
            samples, seconds = sum(each["samples"] for each in told), max(each["train_s"] for each in told)
            return self._over_epochs(samples / seconds, told[0]["evaluate_s"], told[0]["dataset"])
        return sum(
            self._over_epochs(
                each["samples"] / each["train_s"], self._factors[rank] * each["evaluate_s"], each["dataset"]
            )
            for rank, each in zip(ranks, told, strict=True)
        )

    def _over_epochs(self, rate: float, evaluate_s: float, samples: int) -> float:
        epochs = self._work.epochs
        return epochs * samples / (epochs * samples / rate + (epochs - 1) * evaluate_s)

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


def write_project(work: Work, ranks: int, folder: Path) -> None:
    """An fdl.yml whose command is the example where it lies, and an overlay with a free port."""
    command = {"run": f"python {EXAMPLES / work.example / 'train.py'}", "cluster": True}
    (folder / "fdl.yml").write_text(json.dumps({"commands": {"go": {**command, "env": ONE_THREAD}}}))
    here = {"host": socket.gethostname(), "local_devices": f"cpu:{ranks}", "path": str(folder)}
    controller = {"host": "127.0.0.1", "port": free_port(), "path": str(folder)}
    (folder / "fdl.box.yml").write_text(json.dumps({"cluster": {"controller": controller, "workers": [here]}}))


def ours(work: Work, mode: str, factors: Sequence[float], folder: Path) -> dict[str, Any]:
    """result.json of one whole run."""
    argv = [*work.argv, "--epochs", str(work.epochs)]
    for rank, factor in enumerate(factors[1:], 1):
        argv += ["--slow", f"{rank}:{factor}"]
    done = subprocess.run(
        [BIN / "fdl", "--mode", mode, "@box", "go", *argv], cwd=folder, env=environment(), text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"fdl: exit {done.returncode}\n{done.stdout[-3000:]}")
    result: dict[str, Any] = json.loads((folder / "runs" / "latest" / "result.json").read_text())
    return result


def take_turns(
    work: Work, effort: Effort, workers: Workers, factors: Sequence[float], steps: int, folder: Path
) -> Turn:
    def alone(*ranks: int, kind: str = "alone") -> float:
        return workers.rate(ranks, kind=kind, seconds=effort.seconds)

    disturbance = Disturbance(workers.pids)
    return Turn(
        runs={mode: ours(work, mode, factors, folder) for mode in MODES},
        ddp=workers.rate(workers.ranks, kind="ddp", steps=steps),
        alone=[alone(rank) for rank in workers.ranks],
        at_once=alone(*workers.ranks),
        plain=alone(0, kind="plain"),
        others=disturbance.share(),
    )


def measure(work: Work, effort: Effort) -> list[dict[str, Any]]:
    rows = []
    plain: list[float] = []
    fast: list[float] = []
    for factors in FACTORS:
        with tempfile.TemporaryDirectory(prefix="flodl-bench-") as name:
            folder = Path(name)
            write_project(work, len(factors), folder)
            with Workers(work, factors, folder) as workers:
                tried = workers.rate(workers.ranks, kind="ddp", steps=10)
                steps = max(10, round(effort.seconds * tried / (len(factors) * work.batch)))
                turns = []
                for _ in range(effort.times):
                    turns.append(take_turns(work, effort, workers, factors, steps, folder))
                    print(turns[-1].line(work, factors), flush=True)
        fast += [turn.alone[0] for turn in turns]
        plain += [turn.plain for turn in turns]
        for mode in MODES:
            rows += rows_of(f"{work.example} {ratio(factors)}, {mode}", mode, turns)
    rows.append(
        row(
            f"{work.example}, the Trainer alone against a plain loop",
            statistics.median(fast),
            statistics.median(plain),
            statistics.median(a / b for a, b in zip(fast, plain, strict=True)),
            unit="/s",
        )
    )
    return rows


def rows_of(case: str, mode: str, turns: Sequence[Turn]) -> list[dict[str, Any]]:
    median = statistics.median
    middle = sorted(turns, key=lambda turn: turn.ours(mode))[len(turns) // 2].runs[mode]
    figures = {name: middle[name] for name in ("balance", "sync_share", "rounds", "wall_s", "samples")}
    figures |= {"eval": middle["epochs"][-1]["eval"], "times": len(turns), "unit": "/s", "threads_per_rank": 1}
    figures["others"] = round(median(turn.others for turn in turns), 3)

    def against(name: str, peer: Callable[[Turn], float], **more: Any) -> dict[str, Any]:
        mine = median(turn.ours(mode) for turn in turns)
        times = median(turn.ours(mode) / peer(turn) for turn in turns)
        return row(f"{case}, {name}", mine, median(map(peer, turns)), times, **figures, **more)

    return [
        against("against DDP", lambda turn: turn.ddp, at_least=1.0),
        against("EFFICIENCY (sum of alone)", lambda turn: sum(turn.alone), at_least=PROMISE),
        against("sum of alone, all at once", lambda turn: turn.at_once),
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="once each, two epochs, a second per measurement")
    parser.add_argument("--cases", default="", help="parts of the examples' names, comma separated")
    options = parser.parse_args(argv)
    effort = Effort(times=1, seconds=1.0) if options.quick else Effort(times=3, seconds=4.0)
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

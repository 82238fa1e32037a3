"""A run that is killed again and again at random moments, and goes on each time with another number of ranks.

The judges are the ledger (what each checkpoint says it holds), the epochs' rows in metrics.jsonl, and what the ranks
have written down before they handed it in.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
from pathlib import Path

import pytest
from integration.conftest import Make
from integration.processes import of_role
from integration.project import Project, rank_command
from integration.running import Running
from integration.test_resume import overlays
from integration.until import until
from linear_problem import BATCH, distance_after
from tools.chaos import judge

from flodl_wire import environ

SAMPLES, EPOCHS, KILLS = 480, 24, 5  # six chains: thirty moments, which come to no end of the training
WORLDS = (3, 2, 4, 2)  # ranks of one run after the other
WORDS = ("--epochs", EPOCHS, "--batch-ms", 8, "--ballast", 1_000_000, "--checkpoint-every", 0.05)
TRAIN = {"run": rank_command("learning_rank.py", *map(str, WORDS)), "mode": "cpu_cadence"}
STARTS = 2.0  # s from the command to the first batch, about: moments before that are drawn too
LIVES = 0.4  # s of training that a run has at most, but for its last


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three relays that start at once on a busy box need longer than the suite's tenth of all deadlines."""
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, "0.3")


class Chain:
    """`folders`: the runs'; `stood`: what the newest checkpoint says is in the model; `steps`: as many, one behind the
    other, as that took, where ranks that average their models make theirs beside each other."""

    def __init__(self, made: Project, dice: random.Random) -> None:
        self.made, self.dice = made, dice
        self.folders: list[Path] = []
        self.stood: judge.Positions = set()
        self.steps = 0.0

    def start(self) -> tuple[Running, Path]:
        record = self.made.folder / f"record-{len(self.folders)}"
        record.mkdir()
        known = {path.name for path in self._runs()}
        ranks = WORLDS[len(self.folders) % len(WORLDS)]
        run = self.made.start("--resume=auto", f"@of{ranks}", "train", "--record", str(record))
        found = until(lambda: [path for path in self._runs() if path.name not in known], 30, lambda: run.text)
        self.folders += found
        return run, record

    def kill(self, run: Running) -> None:
        """At a moment of its start, of its training, or of a save."""
        when = self.dice.choice(("start", "training", "training", "save", "save"))
        folder = self.folders[-1]
        if when == "start":
            _let_run(run, self.dice.uniform(0.0, STARTS))
        else:
            until(lambda: self.phase() in ("training", "done", "failed"), 60, lambda: run.text)
            _let_run(run, self.dice.uniform(0.0, LIVES))
        if when == "save":
            part = folder / ".checkpoint.safetensors.part"
            until(lambda: part.exists() or run.process.poll() is not None, 30, lambda: run.text, every=0.001)
        victim = self.dice.choice(("all", "all", "launcher", "hub", "ctrl-c"))
        if victim == "ctrl-c":
            run.interrupt()
        else:
            there = run.inventory()
            for process in of_role(there, victim) or there:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        until(lambda: run.process.poll() is not None or self.phase() in ("done", "failed"), 60, lambda: run.text)
        if self.phase() == "failed":
            for launcher in of_role(run.inventory(), "launcher"):  # all is said: it would show its end for a while yet
                launcher.kill()
        run.wait()
        run.nothing_left(20)

    def phase(self) -> str:
        """Of the last run, whatever runs/latest leads to."""
        try:
            return str(json.loads((self.folders[-1] / "state.json").read_bytes())["phase"])
        except FileNotFoundError:
            return ""

    def settle(self, run: Running, record: Path) -> None:
        """What was in the model is not dealt again, and what is in it now was handed in by somebody."""
        done = delivered(record)
        assert not done & self.stood, f"done again: {sorted(done & self.stood)[:5]}\n{run.text}"
        if (self.folders[-1] / "checkpoint.safetensors").exists():
            now = judge.positions(self.folders[-1])
            assert now >= self.stood, "the newest checkpoint holds what the one before held"
            assert now - self.stood <= done, "nothing is in it that nobody did"
            self.steps += len(now - self.stood) / BATCH / WORLDS[(len(self.folders) - 1) % len(WORLDS)]
            self.stood = now

    def _runs(self) -> list[Path]:
        runs = self.made.folder / "runs"
        return [path for path in runs.glob("2*") if path.is_dir()] if runs.exists() else []


def _let_run(run: Running, seconds: float) -> None:
    """Until that moment, or the run's own end."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.process.wait(seconds)


def delivered(record: Path) -> judge.Positions:
    """By the ranks of one run; each position by one of them, once."""
    found = judge.deliveries(record)
    assert len(found) == len(set(found)), "a run without deaths deals nothing twice"
    return set(found)


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_five_random_moments_every_sample_is_in_the_model_exactly_once(project: Make, seed: int) -> None:
    made = project(train=TRAIN, ranks=3)
    overlays(made, *WORLDS)
    chain = Chain(made, random.Random(seed))
    for _ in range(KILLS):
        run, record = chain.start()
        chain.kill(run)
        chain.settle(run, record)
        if chain.phase() == "done":
            break  # it was quicker than its end
    else:
        run, record = chain.start()
        run.done(90)
        chain.settle(run, record)
    assert chain.stood == judge.everything(EPOCHS, SAMPLES)
    result = run.result()
    assert not judge.epochs(chain.folders, None, EPOCHS, SAMPLES)
    assert result["resumed"], "it went on from one of the others"
    assert [(epoch["epoch"], epoch["samples"]) for epoch in result["epochs"]] == [(n, SAMPLES) for n in range(EPOCHS)]
    off, expected = result["epochs"][-1]["eval"]["off"], distance_after(chain.steps, SAMPLES)
    assert off < 1.1 * expected, f"it has learned as much as {chain.steps:.0f} steps should teach: {expected:.2f}"

"""The controller is killed in mid-run and started again with resume: the boxes come back by themselves, whichever are
left, and the run goes on in the middle of its epoch.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from integration.conftest import Make
from integration.processes import of_role
from integration.project import RANKS, Project, rank_command
from integration.running import Running
from integration.test_persist import TOKEN, farm, formed
from integration.test_resume import LONG, rows, saved
from integration.until import until
from integration.walk_in import walk_in_here
from tools.chaos import judge

from flodl_wire import environ

LEARNING = f"python {RANKS / 'learning_rank.py'}"
SAMPLES, EPOCHS = 4800, 3  # an epoch lasts some seconds: it is in the middle of one that the controller dies
WORDS = ("--samples", str(SAMPLES), "--epochs", str(EPOCHS), "--batch-ms", "10")
TRAIN = {"run": rank_command("learning_rank.py", *WORDS), "mode": "cpu_cadence"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three relays that start at once on a busy box need longer than the suite's tenth of all deadlines."""
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, "0.3")


def fleet(made: Project, *names: str) -> dict[str, Running]:
    where = f"127.0.0.1:{made.port}"
    usual = ("--token", TOKEN, "--bin", LEARNING, "--persist")
    return {name: walk_in_here(made, name, where, *usual) for name in names}


def full_speed(folder: Path) -> list[tuple[str, float]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["after"], row["took_s"]) for row in found if row["kind"] == "full_speed"]


@pytest.mark.parametrize("left", [("one", "two", "three"), ("one", "two")])
def test_a_fleet_outlives_its_controller_and_takes_the_run_up_where_it_was(
    project: Make, left: tuple[str, ...]
) -> None:
    made = project(train=TRAIN)
    farm(made, min_rank_start=2, target_ranks=3, join_timeout=4, max_join_timeout=60)
    walkers = fleet(made, "one", "two", "three")
    run = made.start("@farm", "train")
    folder = saved(run)
    until(lambda: judge.cursor(folder).get("merged"), 20, lambda: run.text)
    run.processes("launcher")[0].kill(signal.SIGKILL)
    killed = time.monotonic()
    run.wait()
    until(lambda: not of_role(made.inventory(), "rank"), 10, lambda: "\n".join(map(str, made.inventory())))
    for name in set(walkers) - set(left):
        walkers[name].interrupt()
        assert walkers[name].wait() == 130, walkers[name].text
    until(lambda: not of_role(made.inventory(), "hub"), 20, lambda: run.text)  # it saves the last average
    stood = judge.cursor(folder)
    done = stood["epoch"] * SAMPLES + sum(count for _, count in stood.get("merged", []))
    assert 0 < done < EPOCHS * SAMPLES and stood["world_size"] == 3

    again = made.start("--resume=auto", "@farm", "train")
    within = rf", {done % SAMPLES:,} of 4,800 samples of it are done" if done % SAMPLES else " begins"
    again.line(rf"goes on from .*: epoch {stood['epoch'] + 1}{within}")
    again.line(r"full speed \d+\.\d s after the world formed")
    assert time.monotonic() - killed < 60, "from the kill, with everything that was waited for"
    state = again.done()
    assert sorted(member.host for member in state.members) == sorted(left)
    assert not judge.epochs([folder, again.run_folder.resolve()], None, EPOCHS, SAMPLES)
    assert again.result()["samples"] == EPOCHS * SAMPLES - done
    for name in left:
        until(lambda: formed(walkers[name]) == 2, 5, lambda: walkers[name].text)  # noqa: B023 - waited for at once
        assert "Traceback" not in walkers[name].text
    ((after, took),) = full_speed(again.run_folder)
    assert after == "the world formed" and took < 60


def test_after_a_death_the_others_are_at_full_speed_again_and_it_is_said_how_soon(project: Make) -> None:
    made = project(train=LONG, ranks=3)
    run = made.start("@one", "train")
    run.line(r":2\] rank 2 of 3")
    until(lambda: (run.run_folder / "metrics.jsonl").exists() and full_speed(run.run_folder), 40, lambda: run.text)
    os.kill(int(run.line(r":2\] rank 2 of 3").rpartition("pid ")[2]), signal.SIGKILL)
    run.line(r"full speed \d+\.\d s after rank 2 was lost")
    (_, (after, took)) = full_speed(run.run_folder)
    assert after == "rank 2 was lost" and took < 60
    run.interrupt()
    run.wait()
    assert all(merged == [[0, 480]] for _, merged in rows(run.run_folder))

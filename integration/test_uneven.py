"""Ranks of unequal speed: the fast one does more, and both arrive together. And what ranks tell of their time."""

from __future__ import annotations

import json

import pytest
from integration.conftest import Make
from integration.project import rank_command

BATCHES, BATCH_S, SLOWER = 1000, 0.012, 3  # some twenty-five windows of thirty and ten batches
WORDS = ["--samples", str(8 * BATCHES), "--epochs", "1", "--batch-ms", str(BATCH_S * 1e3), "--slow", f"1:{SLOWER}"]


@pytest.mark.alone  # how long batches take is measured
def test_a_rank_three_times_as_slow_does_a_third_and_nobody_waits(project: Make) -> None:
    made = project(train={"run": rank_command("plain_rank.py", *WORDS), "mode": "cpu_cadence"})
    run = made.start("@one", "train", env={"FLODL_NET_TIMEOUT_SCALE": "1"})
    run.done()
    result = run.result()
    rows = [json.loads(line) for line in (run.run_folder / "metrics.jsonl").read_text().splitlines()]
    settled = [row["batches"] for row in rows if row["kind"] == "round" and row["rounds"] >= 5]
    assert len(settled) >= 5, rows
    ratio = sum(batches["0"] for batches in settled) / sum(batches["1"] for batches in settled)
    took = 1 / result["balance"]  # against ranks of the speed that each had, of whom nobody ever waits
    print(f"shares {ratio:.2f} : 1, {took:.3f} of the ideal time")
    assert ratio == pytest.approx(SLOWER, rel=0.2)
    assert took <= 1.15


@pytest.mark.parametrize("script", ["plain_rank.py", "learning_rank.py", "learning_trainer.py"])
def test_what_ranks_tell_of_their_time_adds_up(project: Make, script: str) -> None:
    """Those without torch, which many tests stand on, as those of the Trainer."""
    words = ["--samples", "4000", "--epochs", "2", "--batch-ms", "2"]
    made = project(train={"run": rank_command(script, *words), "mode": "cpu_sync"})  # an average for each batch
    run = made.start("@one", "train")
    run.done()
    result = run.result()
    told = [(rank["busy_s"] + rank["wait_s"]) / result["wall_s"] for rank in result["ranks"]]
    print(f"of {result['wall_s']:.2f} s the ranks tell {told}, averages {result['sync_share']}")
    assert all(0.75 <= share <= 1.02 for share in told), result
    assert result["sync_share"] > 0.02

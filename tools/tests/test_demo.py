"""What the demo says of a result."""

from __future__ import annotations

from pathlib import Path

from tools.demo import last_accuracy, summary

RESULT = {
    "verdict": "done",
    "why": "all 20 epochs done",
    "world_size": 2,
    "wall_s": 24.3,
    "samples": 28740,
    "rounds": 120,
    "balance": 0.914,
    "ranks": [
        {"rank": 0, "batches": 640, "samples_per_s": 900.0, "busy_s": 22.0, "wait_s": 1.0},
        {"rank": 1, "batches": 258, "samples_per_s": 360.0, "busy_s": 22.4, "wait_s": 0.8},
    ],
    "epochs": [
        {"epoch": 0, "eval": {"accuracy": 0.81}},
        {"epoch": 1, "eval": {"accuracy": 0.978}},
        {"epoch": 2, "eval": None},
    ],
}


def test_the_accuracy_is_that_of_the_newest_epoch_that_has_one() -> None:
    assert last_accuracy(RESULT) == 0.978
    assert last_accuracy({"epochs": []}) is None


def test_the_summary_says_what_happened_where_the_files_are_and_two_things_to_try() -> None:
    text = summary(RESULT, Path.cwd() / "runs" / "x")
    for piece in (
        "all 20 epochs done",
        "2 ranks",
        "accuracy 0.978",
        "balance 0.91",
        "rank 1: 258",
        "runs/x/",
        "fdl init",
        "two-boxes.md",
    ):
        assert piece in text

"""The launcher's last line of figures."""

from __future__ import annotations

from flodl_window.last_words import figures
from flodl_wire.result import EpochResult, RunResult

EPOCHS = [EpochResult(at, 0.5, 1.0, 100, {"accuracy": 0.25 * at}) for at in range(3)]


def test_the_figures_are_told_in_one_line() -> None:
    result = RunResult("r", "cpu_cadence", 2, wall_s=1.5, samples=300, samples_per_s=200, balance=0.9, epochs=EPOCHS)
    assert figures(result) == "3 epochs, 300 samples in 1.5 s; 200 samples/s; balance 0.90; accuracy 0.5"


def test_a_run_that_went_on_says_what_is_its_own_and_what_both_runs_did() -> None:
    result = RunResult("r", "cpu_cadence", 2, wall_s=0.5, samples=120, samples_per_s=240, epochs=EPOCHS)
    result.resumed = "runs/first/checkpoint.safetensors"
    told = "3 epochs in all, 300 samples; 120 of them by this run in 0.5 s; 240 samples/s; accuracy 0.5"
    assert figures(result) == told


def test_work_that_stands_in_no_average_is_told() -> None:
    result = RunResult("r", "cpu_cadence", 2, wall_s=1.5, samples=300, samples_per_s=200, undone=24, epochs=EPOCHS)
    told = "300 samples in 1.5 s; 24 of them left out, their work was not finite; 200 samples/s"
    assert told in figures(result)
    assert "2 ranks, cpu_cadence; 24 samples left out, not finite; loss" in repr(result)

"""What every benchmark shares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from integration.settled import settled
from tools.bench import rows, run, slow_link


def test_peers_take_turns_and_the_ratio_is_the_median_of_the_pairs() -> None:
    turns: list[str] = []
    ours = iter([1.0, 2.0, 4.0])
    peer = iter([3.0, 4.0, 4.0])

    def measure(who: str) -> float:
        turns.append(who)
        return next(ours if who == "ours" else peer)

    assert rows.interleaved(lambda: measure("ours"), lambda: measure("peer"), 3) == (2.0, 4.0, 2.0)
    assert turns == ["ours", "peer"] * 3


def test_a_report_is_a_file_and_a_table_and_says_whether_the_promise_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rows, "FOLDER", tmp_path)
    good, missed = rows.row("fast", 1.0, 3.0, 3.0, at_least=2.0), rows.row("slow", 1.0, 1.0, 1.0, at_least=2.0)
    assert rows.report("x", [good]) and not rows.report("x", [good, missed])
    assert json.loads((tmp_path / "x.json").read_text()) == [good, missed]
    assert ">= 2  MISSED" in capsys.readouterr().out


def test_an_unknown_benchmark_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["nonsense"]) == 2
    said = capsys.readouterr().err
    assert "launch" in said and "startup" in said and "rows" not in said


def metrics(folder: Path, rounds: int, ms: float) -> Path:
    """A run whose averages took `ms` behind the tenth, ten seconds each."""
    made = [{"kind": "round", "rounds": n, "t": 10.0 * n, "sync_ms": ms if n > 10 else 9e3} for n in range(rounds)]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, [{"kind": "begin"}, *made])))
    return folder


def test_what_averages_cost_is_read_behind_the_tenth_window(tmp_path: Path) -> None:
    assert settled(metrics(tmp_path, 14, 500.0)) == (0.05, 3, 30.0)
    with pytest.raises(AssertionError):
        settled(metrics(tmp_path, 12, 500.0))


def test_a_slow_link_is_measured_only_in_cases_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        slow_link.main(["--cases", "float32,morse"])
    assert ended.value.code == 2 and "'morse'" in capsys.readouterr().err

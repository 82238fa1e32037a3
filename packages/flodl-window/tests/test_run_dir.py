from __future__ import annotations

import json
from pathlib import Path

import pytest

from flodl_window import run_dir
from flodl_window.run_dir import RunDir, new_id
from flodl_wire.faults import Broken
from flodl_wire.result import RunResult


def test_latest_points_at_the_last_run(tmp_path: Path) -> None:
    for name in ("one", "two"):
        RunDir.create(name, tmp_path)
    assert (tmp_path / "runs/latest").readlink() == Path("two")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["latest", "one", "two"]


def test_a_folder_in_the_place_of_latest_is_left_alone_and_noted(tmp_path: Path) -> None:
    (tmp_path / "runs/latest/mine").mkdir(parents=True)
    made = RunDir.create("one", tmp_path)
    assert made.note == (
        f"{tmp_path}/runs/latest does not lead to this run: it is a folder, and no link of ours; "
        f"this run is {tmp_path}/runs/one"
    )
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["latest", "one"]
    assert (tmp_path / "runs/latest/mine").is_dir() and not made.trouble


def test_ids_sort_by_time_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    assert new_id() != new_id() and len(new_id()) == len("20261129-221500-3f2a")


def test_logs_take_every_line_whatever_is_in_it(tmp_path: Path) -> None:
    made = RunDir.create("r", tmp_path)
    made.log("node-a-0", ["plain", "\x1b[31mred\x1b[0m é ☃", "lone \udcff surrogate"])
    made.log("node-a-0", ["more"])
    made.close()
    text = (made.path / "log/node-a-0.log").read_text(encoding="utf-8")
    assert text == "plain\n\x1b[31mred\x1b[0m é ☃\nlone ? surrogate\nmore\n"


def test_results_are_written_whole(tmp_path: Path) -> None:
    made = RunDir.create("r", tmp_path)
    made.write_result(RunResult("r", "cpu_sync", 2))
    assert json.loads((made.path / "result.json").read_bytes())["world_size"] == 2
    assert not list(made.path.glob(".*"))


def test_a_place_that_cannot_be_written_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(Broken) as caught:
        RunDir.create("r", tmp_path)
    assert "FLODL_RUN_DIR" in caught.value.fix


def test_a_disk_without_room_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_dir, "LEAST_FREE", 1 << 60)
    with pytest.raises(Broken) as caught:
        RunDir.create("r", tmp_path)
    assert "MB are free" in caught.value.why
    assert list((tmp_path / "runs").iterdir()) == [], "a refusal leaves no folder of a run that never was"


def test_a_disk_that_fills_up_on_the_way_is_remembered_once(tmp_path: Path) -> None:
    made = RunDir.create("r", tmp_path)
    made.path.joinpath("log").rmdir()
    made.log("a", ["x"])
    made.log("b", ["x"])
    assert "log/a.log" in made.trouble

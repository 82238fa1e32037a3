"""Which run a served folder holds, and which it held before."""

from __future__ import annotations

from pathlib import Path

from flodl_wire.served_runs import FILE, KEPT, newer_run, runs_of, served_folder, with_run


def test_only_a_run_that_the_folder_held_before_has_a_newer_one(tmp_path: Path) -> None:
    assert runs_of(tmp_path) == [] and newer_run([], "a" * 32) == ""
    file = tmp_path / FILE
    file.parent.mkdir()
    for run in ("a", "b", "c"):
        file.write_bytes(with_run(tmp_path, run * 32))
    runs = runs_of(tmp_path)
    told = {run: newer_run(runs, run * 32)[:1] for run in "abcd"}
    assert told == {"a": "c", "b": "c", "c": "", "d": ""}
    assert newer_run(runs, "") == newer_run([*runs, "a" * 32], "a" * 32) == "", "published again it is the newest"


def test_the_file_stays_small_and_garbage_in_it_is_no_run(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.parent.mkdir()
    file.write_bytes(b"\xff\n" * (2 * KEPT))
    file.write_bytes(with_run(tmp_path, "a" * 32))
    assert len(file.read_bytes().split()) == KEPT and newer_run(runs_of(tmp_path), "b" * 32) == ""


def test_a_served_folder_is_named_from_the_projects(tmp_path: Path) -> None:
    assert served_folder("", "/p") == Path.home() / ".flodl/run"
    assert served_folder("../out", "/p/q") == Path("/p/out")
    assert served_folder("/srv/run", "/p") == Path("/srv/run")

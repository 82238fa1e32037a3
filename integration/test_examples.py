"""The projects that users copy, and the one that `fdl init` writes, with torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from integration.conftest import Make
from integration.project import BIN, Project

ROOT = Path(__file__).resolve().parents[1]


def copied(made: Project, example: str) -> Project:
    """`made`, whose folder now holds a copy of that example (its one-box overlay stays)."""
    source = ROOT / "docs" / "examples" / example
    shutil.copytree(source, made.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    return made


def test_the_language_model_learns_on_two_ranks(project: Make) -> None:
    run = copied(project(), "charlm").start("@one", "charlm", "--epochs", "1", "--kilobytes", "250")
    run.done(within=110)
    result = run.result()
    assert result["epochs"][-1]["eval"]["bits_per_byte"] < 7
    assert result["samples"] == sum(rank["samples"] for rank in result["ranks"])


def test_a_script_trains_alone_without_any_tool(project: Make) -> None:
    folder = copied(project(), "digits").folder
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command: list[str | Path] = [BIN / "python", "train.py", "--epochs", "1"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert (folder / "runs" / "latest" / "result.json").exists()


def test_a_project_of_fdl_init_trains_at_once(project: Make, tmp_path: Path) -> None:
    made = project()
    assert made.fdl("init", str(tmp_path / "mine")).returncode == 0
    shutil.copy(made.folder / "fdl.one.yml", tmp_path / "mine")
    made.folder = tmp_path / "mine"
    made.write("fdl.one.yml", {"cluster": made.one_box(2)})
    run = made.start("@one", "train")
    run.done(within=110)

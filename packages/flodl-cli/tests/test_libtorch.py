"""The active libtorch variant holds for a plain command of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_box import Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = Box(tmp_path / "box")
    made.tool("show")
    (made.project / "fdl.yml").write_text(json.dumps({"commands": {"show": {"run": str(made.bin / "show")}}}))
    return made


def put(root: Path, arch: str = "") -> Path:
    folder = root / "libtorch/precompiled/cpu"
    for inner in ("lib", "site"):
        (folder / inner).mkdir(parents=True)
    (folder / ".arch").write_text(arch)
    (root / "libtorch/.active").write_text("precompiled/cpu\n")
    return folder


@pytest.mark.parametrize("whose", ["the project's", "the user's"])
def test_a_plain_command_finds_it_first(box: Box, whose: str) -> None:
    home = box.folder / "home"
    folder = put(box.project if whose == "the project's" else home / ".flodl")
    assert box.fdl("show", HOME=str(home), LD_LIBRARY_PATH="/mine").returncode == 0
    env = box.recorded()["env"]
    assert isinstance(env, dict)
    assert env["PYTHONPATH"].startswith(f"{folder}/site:") and env["LD_LIBRARY_PATH"] == f"{folder}/lib:/mine"


def test_without_one_nothing_is_set(box: Box) -> None:
    assert box.fdl("show", HOME=str(box.folder / "home")).returncode == 0
    env = box.recorded()["env"]
    assert isinstance(env, dict) and "LD_LIBRARY_PATH" not in env


@pytest.mark.parametrize(("arch", "said"), [("python=cp27\n", "it is for cp27"), (None, "which is not there")])
def test_one_that_cannot_hold_is_refused_before_anything_runs(box: Box, arch: str | None, said: str) -> None:
    folder = put(box.project, arch or "")
    if arch is None:
        folder.rename(box.folder / "gone")
    done = box.fdl("show")
    assert done.returncode == 1 and said in done.stderr and not box.record.exists(), done.stderr

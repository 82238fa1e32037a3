from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flodl_wire import sibling
from flodl_wire.faults import Refused


def tool(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


def test_one_beside_this_python_comes_before_one_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tool(tmp_path / "system", "python")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/python").symlink_to(real)
    tool(tmp_path / "system", "flodl-x")
    elsewhere = tool(tmp_path / "path", "flodl-x")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/python"))
    monkeypatch.setenv("PATH", f"{tmp_path}/none:{tmp_path}/path")
    assert sibling.find("flodl-x") == str(elsewhere), "the link is not followed to another environment's tools"
    beside = tool(tmp_path / "venv", "flodl-x")
    assert sibling.find("flodl-x") == sibling.require("flodl-x") == str(beside)


def test_one_that_is_not_there_comes_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flodl-x").mkdir()  # a folder of that name is none
    (tmp_path / "flodl-y").write_text("not executable")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sibling.find("flodl-x") is None and sibling.find("flodl-y") is None
    with pytest.raises(Refused) as caught:
        sibling.require("flodl-x")
    assert caught.value.fix == f"{tmp_path}/bin/python -m pip install flodl-x"

"""`make setup`: what it says before it does anything, and when it does nothing."""

from __future__ import annotations

import builtins
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tools import setup


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without .venv; commands are recorded in `ran` instead of run."""
    (tmp_path / "packages" / "a").mkdir(parents=True)
    for file in ("pyproject.toml", "packages/a/pyproject.toml"):
        (tmp_path / file).write_text("x")
    venv = tmp_path / ".venv"
    for name, value in {"ROOT": tmp_path, "VENV": venv, "PYTHON": venv / "bin/python", "STAMP": venv / "stamp"}.items():
        monkeypatch.setattr(setup, name, value)
    return tmp_path


def test_the_fingerprint_follows_every_pyproject(fresh: Path) -> None:
    before = setup.fingerprint()
    (fresh / "packages/a/pyproject.toml").write_text("y")
    assert setup.fingerprint() != before


def test_nothing_is_said_or_done_where_the_fingerprint_stands(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (fresh / ".venv/bin").mkdir(parents=True)
    setup.PYTHON.write_text("")
    setup.STAMP.write_text(setup.fingerprint())
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("something was run"))
    assert setup.main() == 0
    assert capsys.readouterr().out == ""


def test_a_python_without_venv_gets_the_line_to_type(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "ensurepip":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SystemExit) as stopped:
        setup.make_venv()
    assert stopped.value.code == 1
    assert "apt-get install python3." in capsys.readouterr().err


@pytest.mark.parametrize("found", ["2.13.0", None])
def test_torch_is_fetched_by_pip_and_only_where_none_can_be_imported(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: str | None
) -> None:
    ran: list[tuple[object, ...]] = []
    monkeypatch.setattr(setup, "torch_in_venv", lambda: found)
    monkeypatch.setattr(setup, "lend_outer_torch", lambda: None)
    monkeypatch.setattr(setup, "run", lambda *command: ran.append(command))
    setup.install_torch()
    assert bool(ran) is (found is None)
    said = capsys.readouterr().out
    assert "is there" in said if found else "200 MB" in said and "pip" in said
    assert not ran or (ran[0][1:4] == ("-m", "pip", "install") and ran[0][-1] == setup.TORCH)


def test_uv_is_never_asked_for_torch(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    monkeypatch.setattr(setup, "run", lambda *command: ran.append(" ".join(map(str, command))))
    setup.install_workspace()
    assert len(ran) == 1 and "uv pip install" in ran[0] and "torch" not in ran[0]

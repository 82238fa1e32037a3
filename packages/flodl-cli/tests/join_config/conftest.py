"""A project and a home of its own for each test, and `fdl join-config` typed in it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flodl_cli import main


@dataclass
class Typed:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@dataclass
class Wizard:
    """`root` is the project; `type` runs `fdl WORDS` in it, without a terminal."""

    root: Path
    home: Path
    type: Callable[..., Typed]

    def config(self, *words: str) -> dict[str, Any]:
        """`fdl join-config lab … --json`, which must not fail."""
        typed = self.type("join-config", "lab", "--json", *words)
        assert typed.code == 0, typed.out + typed.err
        return typed.document

    def farm(self, *words: str) -> dict[str, Any]:
        return self.config("--controller", "me@desk:2222", "--yes", *words)

    def tree(self) -> dict[str, tuple[int, int, bytes]]:
        """Every file of the project: mode, time of change, content."""
        found = {}
        for path in self.root.rglob("*"):
            if path.is_file():
                seen = path.stat()
                found[str(path.relative_to(self.root))] = (seen.st_mode & 0o777, seen.st_mtime_ns, path.read_bytes())
        return found

    def secrets(self) -> list[str]:
        """What must never be shown."""
        key = (self.root / ".fdl/lab/keys/join_key").read_text().splitlines()[1:-1]
        return [*key, self.token]

    @property
    def token(self) -> str:
        line = next(each for each in (self.root / ".fdl/lab/worker.yml").read_text().splitlines() if "token:" in each)
        return line.split('"')[1]


@pytest.fixture
def wizard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Wizard:
    root, home = tmp_path / "digits", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    (root / "fdl.yml").write_text("commands:\n  train: {run: python train.py, cluster: true}\n")
    (root / "train.py").write_text("")
    monkeypatch.chdir(root)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", "me")
    monkeypatch.delenv("FDL_ENV", raising=False)

    def typed(*words: str, answers: str | None = None) -> Typed:
        """`answers`: lines typed at a terminal; None where there is none."""
        stdin = _Terminal(answers) if answers is not None else io.StringIO()
        monkeypatch.setattr(sys, "stdin", stdin)
        if answers is not None:
            monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        capsys.readouterr()
        try:
            code = main.main(list(words))
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        said = capsys.readouterr()
        return Typed(code, said.out, said.err)

    return Wizard(root, home, typed)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

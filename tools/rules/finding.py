"""What a rule reports, and the tree it looks at."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

GENERATED = {".git", ".venv", ".tox", "build", "dist", "runs", "__pycache__", ".hypothesis"}


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule: where, what, why it matters, and the way out."""

    file: str
    line: int
    what: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}: {self.why}\n    fix: {self.fix}"


class Tree:
    """The files that git tracks or would track (without git: all that are not generated), read at most once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._texts: dict[str, str] = {}
        self._modules: dict[str, ast.Module] = {}

    @cached_property
    def files(self) -> list[str]:
        """Relative paths with forward slashes, sorted."""
        if (self.root / ".git").exists():
            command = ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            listed = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
            return sorted({name for name in listed if name and (self.root / name).is_file()})
        found = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        return sorted(path.as_posix() for path in found if not GENERATED & set(path.parts))

    @cached_property
    def python(self) -> list[str]:
        return [name for name in self.files if name.endswith(".py")]

    def text(self, file: str) -> str:
        """The file's text; empty for what is not text."""
        if file not in self._texts:
            data = (self.root / file).read_bytes()
            self._texts[file] = "" if b"\0" in data else data.decode("utf-8", "replace")
        return self._texts[file]

    def module(self, file: str) -> ast.Module:
        if file not in self._modules:
            self._modules[file] = ast.parse(self.text(file), file)
        return self._modules[file]

"""A source, a served folder and a worker's copy in one temporary folder, and the verbs typed there."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flodl_publish.main import main

TOOL = str(Path(sys.executable).parent / "flodl-publish")


def git(folder: Path, *words: str) -> str:
    """git with an author and nobody's own settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *words]
    return subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@dataclass
class World:
    root: Path

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def served(self) -> Path:
        return self.root / "served"

    @property
    def tree(self) -> Path:
        return self.served / "tree"

    @property
    def manifest(self) -> Path:
        return self.tree / ".fdl-run.yml"

    @property
    def worker(self) -> Path:
        return self.root / "worker"

    def start(self, *words: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        outer = {**os.environ, "HOME": str(self.root / "home"), **(env or {})}
        return subprocess.Popen(
            [TOOL, *(str(word) for word in words)],
            cwd=self.root,
            env=outer,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, env=env)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def publish(self, *words: object, env: dict[str, str] | None = None) -> dict[str, Any]:
        """The JSON answer: a report, or {"error": …}."""
        return self.ask("publish", f"file://{self.source}", "--to", self.served, *words, env=env)

    def publish_error(self, *words: object) -> str:
        """The refusal, as people read it."""
        done = self.run("publish", f"file://{self.source}", "--to", self.served, *words)
        assert done.returncode != 0 and done.stdout == "", done.stdout
        assert "Traceback" not in done.stderr, done.stderr
        return done.stderr

    def fetch(self, *words: object) -> dict[str, Any]:
        return self.ask("fetch", f"file://{self.tree}", "--to", self.worker, *words)

    def ask(self, verb: str, *words: object, env: dict[str, str] | None = None) -> dict[str, Any]:
        """In this process where nobody sets its environment: a tenth of the time."""
        line = [verb, "--json", *map(str, words)]
        if env is None:
            code, out, err = self._here(line)
        else:
            done = self.run(*line, env=env)
            code, out, err = done.returncode, done.stdout, done.stderr
        assert "Traceback" not in err, err
        document: dict[str, Any] = json.loads(out)
        assert (code != 0) == ("error" in document), err
        return document

    def _here(self, line: list[str]) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        home, folder = os.environ["HOME"], Path.cwd()
        os.environ["HOME"] = str(self.root / "home")
        os.chdir(self.root)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(line)
        finally:
            os.chdir(folder)
            os.environ["HOME"] = home
        return code, out.getvalue(), err.getvalue()


def content(root: Path) -> dict[str, tuple[str, ...]]:
    """What lies in `root`, by an eye of its own: kind, mode, mtime and content; without the publish's own two files."""
    found: dict[str, tuple[str, ...]] = {}
    for folder, inner, names in os.walk(root):
        for path in (Path(folder, name) for name in [*names, *inner]):
            inside = str(path.relative_to(root))
            if path.is_symlink():
                found[inside] = ("link", str(path.readlink()))
            elif path.is_file() and inside not in (".fdl-run.yml", ".fdl-run.sha256"):
                seen = path.stat()
                sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
                found[inside] = ("file", oct(seen.st_mode & 0o777), str(seen.st_mtime_ns), sha256)
    return found


def whole(root: Path) -> bool:
    """True when a manifest is there and all it vouches for is: what no worker may ever see otherwise."""
    import yaml

    manifest = yaml.safe_load((root / ".fdl-run.yml").read_bytes())
    data = (root / ".fdl-run.sha256").read_bytes()
    if hashlib.sha256(data).hexdigest() != manifest["digest"]["sha256"]:
        return False
    check = subprocess.run(["sha256sum", "--check", "--quiet", ".fdl-run.sha256"], cwd=root, capture_output=True)
    return check.returncode == 0

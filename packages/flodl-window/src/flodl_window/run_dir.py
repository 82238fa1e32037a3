"""runs/<id>/: what a run leaves behind, written so that a reader never sees half of it."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from flodl_wire import environ, process_mark
from flodl_wire.faults import Broken
from flodl_wire.result import RunResult
from flodl_wire.state import State

LEAST_FREE = 16 * 1024 * 1024  # bytes: a disk with less is as good as full for logs and a checkpoint


def new_id() -> str:
    """ "20261129-221500-3f2a": sorts by time, unique enough for two starts in one second."""
    return time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)


def runs_folder() -> Path:
    """Where runs started here leave their folders."""
    return Path(os.environ.get(environ.RUN_DIR) or ".").absolute() / "runs"


class RunDir:
    """The folder of one run. `trouble` is the first thing that could not be written, `note` why runs/latest does not
    lead here ("" while all is well).
    """

    def __init__(self, run: str, path: Path) -> None:
        self.run = run
        self.path = path
        self.trouble = ""
        self.note = ""
        self._logs: dict[str, TextIO] = {}
        self._events: BinaryIO | None = None

    @classmethod
    def create(cls, run: str, under: Path | None = None) -> RunDir:
        """Make runs/<run> and point runs/latest at it. Raises Broken with a sentence when it cannot be written."""
        root = under.absolute() / "runs" if under is not None else runs_folder()
        made = cls(run, root / run)
        try:
            (made.path / "log").mkdir(parents=True)
            free = os.statvfs(made.path)
            if free.f_bavail * free.f_frsize < LEAST_FREE:
                raise OSError(f"only {free.f_bavail * free.f_frsize >> 20} MB are free there")
            process_mark.write(made.path)
        except OSError as err:
            with contextlib.suppress(OSError):
                (made.path / "log").rmdir()
                made.path.rmdir()
            raise Broken(
                "no-run-dir",
                f"cannot write the run's folder {made.path}",
                err.strerror or str(err),
                f"make room or rights there, or set {environ.RUN_DIR} to another folder",
            ) from None
        made._point_latest(root)
        return made

    def _point_latest(self, root: Path) -> None:
        """A convenience: no run ends because of it."""
        latest, new = root / "latest", root / f".latest-{self.run}"
        try:
            new.symlink_to(self.run)
            new.replace(latest)
        except OSError as err:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            folder = latest.is_dir() and not latest.is_symlink()
            why = "it is a folder, and no link of ours" if folder else err.strerror or str(err)
            self.note = f"{latest} does not lead to this run: {why}; this run is {self.path}"

    def write_state(self, state: State) -> None:
        self._replace("state.json", msgspec.json.encode(state))

    def write_result(self, result: RunResult) -> None:
        self._replace("result.json", msgspec.json.format(msgspec.json.encode(result), indent=2))

    def write_history(self, document: bytes) -> None:
        """What those who watched have seen, once, at the verdict."""
        self._replace("history.json", document)

    def event(self, row: dict[str, Any]) -> None:
        """One more line of events.jsonl (aftermath/record.py says what stands in it)."""
        try:
            if self._events is None:
                self._events = (self.path / "events.jsonl").open("ab")
            self._events.write(msgspec.json.encode(row) + b"\n")
            self._events.flush()
        except OSError as err:
            self._note("events.jsonl", err)

    def log(self, name: str, lines: list[str]) -> None:
        """Append whole lines to log/<name>.log as they came, escapes and all."""
        try:
            file = self._logs.get(name)
            if file is None:
                path = self.path / "log" / f"{name}.log"
                file = path.open("a", encoding="utf-8", errors="replace", newline="\n")
                self._logs[name] = file
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
        except OSError as err:
            self._note(f"log/{name}.log", err)

    def close(self) -> None:
        for file in self._logs.values():
            with contextlib.suppress(OSError):
                file.close()
        if self._events is not None:
            with contextlib.suppress(OSError):
                self._events.close()
        self._logs.clear()
        self._events = None

    def _replace(self, name: str, body: bytes) -> None:
        new = self.path / f".{name}.new"
        try:
            new.write_bytes(body + b"\n")
            new.replace(self.path / name)
        except OSError as err:
            self._note(name, err)

    def _note(self, name: str, err: OSError) -> None:
        if not self.trouble:
            self.trouble = f"cannot write {self.path / name}: {err.strerror or err}"

"""runs/<id>/ of a script run alone: result.json, state.json, metrics.jsonl, and runs/latest pointing at it.

In a world the launcher and the hub write these; here the Trainer does. Every file but the log of metrics is replaced
whole. A disk that takes no more costs what it did not take and one sentence, never the training; only the last
checkpoint (rank/solo_saves.py) is worth a failure.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

import msgspec

from flodl_wire import environ, process_mark
from flodl_wire.faults import Broken
from flodl_wire.result import EpochResult, RunResult
from flodl_wire.state import State


class RunFolder:
    """A new folder for one run. `id` sorts by time: 20261129-221500-3f2a. `trouble`: the first thing that could not be
    written; `note`: why runs/latest does not lead here. Sentences, "" while all is well.
    """

    def __init__(self, root: Path | None = None) -> None:
        runs = (root or Path(os.environ.get(environ.RUN_DIR) or ".")) / "runs"
        self.id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        self.path = runs / self.id
        try:
            self.path.mkdir(parents=True)
            process_mark.write(self.path)
        except OSError as error:
            raise Broken(
                "no-run-folder",
                f"cannot make {self.path}",
                error.strerror or str(error),
                f"run in a folder you may write to, or set {environ.RUN_DIR}",
            ) from None
        self.note, self.trouble = _point_latest(runs, self.id), ""

    def write_state(self, state: State) -> None:
        self._write("state.json", msgspec.json.encode(state))

    def write_result(self, result: RunResult) -> None:
        self._write("result.json", msgspec.json.format(msgspec.json.encode(result), indent=2))

    def append_metrics(self, epoch: EpochResult) -> None:
        """One line per epoch, as the hub writes it in a world."""
        row = {"kind": "epoch", **msgspec.structs.asdict(epoch)}
        path = self.path / "metrics.jsonl"
        try:
            with path.open("ab") as file:
                file.write(msgspec.json.encode(row) + b"\n")
        except OSError as error:
            self._note(path, error)

    def _write(self, name: str, data: bytes) -> None:
        try:
            _replace(self.path / name, data)
        except OSError as error:
            self._note(self.path / name, error)

    def _note(self, path: Path, error: OSError) -> None:
        """The first trouble is worth a sentence; the same disk gives the others."""
        if not self.trouble:
            self.trouble = f"cannot write {path}: {error.strerror or error}; training goes on without it"


def _point_latest(runs: Path, run: str) -> str:
    """Let runs/latest point at `run`; what hinders that, in words ("" for nothing)."""
    latest, pointer = runs / "latest", runs / f".latest-{run}"
    try:
        pointer.symlink_to(run)
        pointer.replace(latest)
    except OSError as error:
        with contextlib.suppress(OSError):
            pointer.unlink(missing_ok=True)
        why = "it is a folder, and no link of ours" if latest.is_dir() and not latest.is_symlink() else error.strerror
        return f"{latest} does not lead to this run: {why}; this run is {runs / run}"
    return ""


def _replace(path: Path, data: bytes) -> None:
    """A reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)  # half of it is of no use, and its room is
        raise

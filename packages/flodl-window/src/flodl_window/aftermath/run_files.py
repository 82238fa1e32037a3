"""A run's folder as it lies there: which one is meant, what is in it, whether anybody still writes to it.

Nothing here trusts a file: a crash leaves half a line, a full disk an empty file, and somebody else's folder may be
anything.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flodl_wire import checkpoints, environ, process_mark
from flodl_wire.faults import Refused

MOST_BYTES = 64 << 20  # of one file that is read whole
TAIL_BYTES = 256 << 10  # of a log's end: fifty lines, be they long

Json = dict[str, Any]


@dataclass
class RunFiles:
    """What was found. Missing or broken files are empty; `broken` names the latter."""

    path: Path
    state: Json = field(default_factory=dict)
    result: Json = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    lives: bool | None = None  # its process still runs; None: cannot be told
    broken: list[str] = field(default_factory=list)

    @property
    def run(self) -> str:
        return str(self.state.get("run") or self.result.get("run") or self.path.name)

    @property
    def goes_on(self) -> bool:
        """A checkpoint is there, with epochs left to do."""
        return checkpoints.goes_on(self.path)

    def first(self, kind: str) -> Json:
        """The first event of that kind, or {}."""
        return next((row for row in self.events if row.get("kind") == kind), {})

    def log_names(self) -> list[str]:
        with contextlib.suppress(OSError):
            return sorted(path.stem for path in (self.path / "log").glob("*.log"))
        return []


def read(path: Path) -> RunFiles:
    """Everything small of a run's folder."""
    found = RunFiles(path)
    found.state = _document(path / "state.json", found)
    found.result = _document(path / "result.json", found)
    found.events = _rows(path / "events.jsonl")
    marked = _document(path / process_mark.NAME, found)
    found.lives = process_mark.lives(marked) if marked else None
    return found


def metrics(path: Path) -> list[Json]:
    """The rows of metrics.jsonl."""
    return _rows(path / "metrics.jsonl")


def history(path: Path) -> Json:
    """history.json, {} without it."""
    return _document(path / "history.json", RunFiles(path))


def last_lines(path: Path, most: int) -> list[str]:
    """The last `most` lines of a log, [] when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines[-most:]


def roots() -> list[Path]:
    """Where runs/ may lie: where FLODL_RUN_DIR says, in this folder, in the project's."""
    places = [os.environ.get(environ.RUN_DIR) or ".", project()]
    return list(dict.fromkeys(Path(place).absolute() / "runs" for place in places))


def project() -> str:
    """The folder of fdl.yml as fdl handed it over; here without one."""
    try:
        return str(Path(json.loads(bytes.fromhex(os.environ[environ.CONFIG_JSON]))["manifest"]).parent)
    except (KeyError, TypeError, ValueError):
        return "."


def folders(where: list[Path] | None = None) -> list[Path]:
    """Every run's folder, newest first (ids sort by time)."""
    found: dict[Path, None] = {}
    for root in roots() if where is None else where:
        with contextlib.suppress(OSError):
            for path in root.iterdir():
                if not path.is_symlink() and path.is_dir() and _is_run(path):
                    found[path] = None
    return sorted(found, key=lambda path: path.name, reverse=True)


def find(run: str = "latest") -> Path:
    """The folder that `run` means: an id, the beginning of one, "latest", or a path. Raises Refused."""
    if not run:
        raise Refused("no-run", "cannot tell of a run without a name", "", "fdl runs lists them")
    given = Path(run).expanduser()
    if ("/" in run or _is_run(given)) and run != "latest":
        if given.name in ("state.json", "result.json", "events.jsonl"):
            given = given.parent
        if given.is_dir() and _is_run(given):
            return given.resolve()
        why = "it is no folder of a run (no state.json in it)"
        raise Refused("no-run", f"cannot use {run}", why, "fdl runs lists them")
    known = folders()
    places = ", ".join(map(str, roots()))
    if run == "latest":
        for root in roots():
            if (root / "latest").is_dir() and _is_run(root / "latest"):
                return (root / "latest").resolve()
        if known:
            return known[0]
        raise Refused("no-run", "cannot tell of a run", f"there is none in {places}", "start one: fdl train")
    hits = [path for path in known if path.name == run] or [path for path in known if path.name.startswith(run)]
    if len(hits) == 1:
        return hits[0]
    if hits:
        names = ", ".join(path.name for path in hits[:5])
        why = f"{len(hits)} begin so: {names}"
        raise Refused("which-run", f"cannot tell which run {run} is", why, "say more of it")
    near = f"the last: {known[0].name}" if known else "there is none"
    raise Refused("no-run", f"cannot find run {run}", f"none in {places} begins so", f"fdl runs lists them ({near})")


def _is_run(path: Path) -> bool:
    return any((path / name).exists() for name in ("state.json", "result.json", "events.jsonl", process_mark.NAME))


def _document(path: Path, found: RunFiles) -> Json:
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        found.broken.append(path.name)
        return {}
    if not isinstance(data, dict):
        found.broken.append(path.name)
        return {}
    return data


def _rows(path: Path) -> list[Json]:
    """Lines of JSON; one that a crash cut in two is left out."""
    try:
        with path.open("rb") as file:
            body = file.read(MOST_BYTES)
    except OSError:
        return []
    rows = []
    for line in body.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows

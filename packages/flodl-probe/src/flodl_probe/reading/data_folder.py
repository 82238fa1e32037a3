"""The data path: is it there, can it be read, what file system is it, how much is free. A dead mount may hang: asked in
a child.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from flodl_probe.child_answer import NoAnswer, from_child
from flodl_probe.facts import DataPath
from flodl_wire import deadlines

CONVENTION = "/flodl/data"
MOUNTS = Path("/proc/self/mounts")
_PATIENCE = 10.0


def read(path: str | None, skip: bool, mounts: Path = MOUNTS) -> DataPath:
    """`path` None: the convention."""
    declared, place = path is not None, path or CONVENTION
    place = str(Path(place).expanduser())
    if skip:
        return DataPath(place, declared, skipped=True)
    try:
        seen: dict[str, Any] = from_child(lambda: _look(place), deadlines.deadline(_PATIENCE))
    except NoAnswer:
        return DataPath(place, declared, exists=True, fs_type=fs_type(place, mounts), hangs=True)
    return DataPath(place, declared, fs_type=fs_type(place, mounts) if seen["exists"] else None, **seen)


def _look(place: str) -> dict[str, Any]:
    if not Path(place).is_dir():
        return {"exists": Path(place).exists()}
    seen: dict[str, Any] = {"exists": True}
    try:
        with os.scandir(place) as entries:
            seen["empty"] = next(entries, None) is None
        seen["readable"] = os.access(place, os.R_OK | os.X_OK)
    except OSError:
        seen["readable"] = False
    try:
        space = os.statvfs(place)
        seen["free_bytes"] = space.f_frsize * space.f_bavail
    except OSError:
        pass
    return seen


def fs_type(place: str, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system `place` is on: the longest mount point in front of it, the last one mounted there."""
    best: tuple[int, str | None] = (0, None)
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescaped(fields[1]).rstrip("/")
        if (place == point or place.startswith(point + "/")) and len(point) >= best[0]:
            best = (len(point), fields[2])
    return best[1]


def _unescaped(text: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text

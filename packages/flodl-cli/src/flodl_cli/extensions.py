"""Tools of other people: `fdl-<word>` beside fdl or on PATH, and entry points of the group `fdl.verbs`.

The entry points are read from the installed packages' own files: `importlib.metadata` costs four bare Python starts,
and whether a name clashes is asked on every command.
"""

from __future__ import annotations

import os
import sys

from flodl_cli import sibling

GROUP = "fdl.verbs"
PREFIX = "fdl-"


class EntryPoint:
    """`name` is the word, `value` what pyproject.toml says: `module:function`."""

    __slots__ = ("name", "package", "value")

    def __init__(self, name: str, value: str, package: str) -> None:
        self.name = name
        self.value = value
        self.package = package


def tools_named(word: str) -> list[str]:
    """Whoever offers `word`, as a user would find it: a path, or an entry point with its package."""
    if "/" in word or "\0" in word:
        return []
    path = sibling.find(PREFIX + word)
    found = [path] if path is not None else []
    return found + [f"{point.value} of {point.package}" for point in entry_points() if point.name == word]


def entry_points() -> list[EntryPoint]:
    """Those of every installed package; of a package that stands twice on the path the first counts, as in imports."""
    found: list[EntryPoint] = []
    seen: set[str] = set()
    for place in dict.fromkeys(sys.path):
        try:
            names = os.listdir(place or os.curdir)
        except OSError:
            continue
        for name in names:
            package = name.partition("-")[0].lower()
            if name.endswith((".dist-info", ".egg-info")) and package not in seen:
                seen.add(package)
                found += _read(os.path.join(place, name, "entry_points.txt"), package)
    return found


def _read(path: str, package: str) -> list[EntryPoint]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return []
    if f"[{GROUP}]" not in text:
        return []
    found, inside = [], False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found.append(EntryPoint(name.strip(), value.split("[")[0].strip(), package))
    return found


def words() -> list[str]:
    """Every word that a tool of somebody else offers here, sorted."""
    found = {point.name for point in entry_points()}
    for folder in {os.path.dirname(sys.executable), *os.environ.get("PATH", os.defpath).split(os.pathsep)}:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:
            continue
        for name in names:
            if name.startswith(PREFIX) and os.access(os.path.join(folder, name), os.X_OK):
                found.add(name[len(PREFIX) :])
    return sorted(word for word in found if word)

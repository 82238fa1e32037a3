"""Which files of a source a program imports, as far as its text says: by `import`, not by what runs."""

from __future__ import annotations

import ast
import posixpath
import warnings
from collections.abc import Iterator
from pathlib import Path


def roots(cwd: str, program: str) -> list[str]:
    """Where imports are looked for, in Python's order: the program's own folder first. Relative to the source."""
    project = posixpath.normpath(cwd or ".")
    places = [posixpath.dirname(program) or ".", project, posixpath.normpath(f"{project}/src")]
    return list(dict.fromkeys(places))


def closure(source: Path, program: str, places: list[str]) -> dict[str, str]:
    """Every file reached → the file that imports it first ("" for the program itself). Paths are relative."""
    reached = {program: ""}
    waiting = [program]
    while waiting:
        path = waiting.pop()
        for name, level in _imports(source / path):
            for found in _find(source, path, name, level, places):
                if found not in reached:
                    reached[found] = path
                    waiting.append(found)
    return reached


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    """Dotted names and levels (0: absolute). `from a import b` gives a and a.b: b may be a module."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        return  # the compile check names it
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, 0
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base, node.level
            for alias in node.names:
                if alias.name != "*":
                    yield f"{base}.{alias.name}" if base else alias.name, node.level


def _find(source: Path, importer: str, name: str, level: int, places: list[str]) -> Iterator[str]:
    """The files of `name` and of the packages above it, in the first place that has any of it."""
    if level:
        folder = posixpath.dirname(importer)
        for _ in range(level - 1):
            folder = posixpath.dirname(folder)
        places = [folder or "."]
    parts = [part for part in name.split(".") if part]
    for place in places:
        found = []
        here = "" if place == "." else place + "/"
        if level and (source / f"{here}__init__.py").is_file():
            found.append(f"{here}__init__.py")
        for part in parts:
            if (source / f"{here}{part}" / "__init__.py").is_file():
                found.append(f"{here}{part}/__init__.py")
            elif (source / f"{here}{part}.py").is_file():
                found.append(f"{here}{part}.py")
                break
            elif not (source / f"{here}{part}").is_dir():
                break
            here += part + "/"
        if found:
            yield from found
            return

"""What else a project needs to be there when it is built: members of its uv workspace, path dependencies, included
requirements. What lies inside the source travels; what lies outside is refused by name.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flodl_publish.recipe import toml
from flodl_wire.faults import Refused

_MAX_PROJECTS = 1000


def needed(source: Path, cwd: str) -> dict[str, str]:
    """Paths inside `source` that the project in `cwd` is built with → the file that names each.

    Raises Refused (outside-source) naming the first that lies outside, (bad-toml) for a file that cannot be read.
    """
    found: dict[str, str] = {}
    waiting, seen = [posixpath.normpath(cwd or ".")], set[str]()
    while waiting and len(seen) < _MAX_PROJECTS:
        folder = waiting.pop()
        if folder in seen:
            continue
        seen.add(folder)
        for file, path in _named(source, folder):
            inside = _inside(source, folder, file, path)
            found.setdefault(inside, file)
            if (source / inside).is_dir():
                waiting.append(inside)
    return found


def _named(source: Path, folder: str) -> Iterator[tuple[str, str]]:
    """(file that names it, path as named) of every dependency by path."""
    here = "" if folder == "." else folder + "/"
    pyproject = toml(source / folder / "pyproject.toml")
    uv = _table(pyproject, "tool", "uv")
    for entry in _table(uv, "sources").values():
        for each in entry if isinstance(entry, list) else [entry]:
            if not isinstance(each, dict):
                continue
            if isinstance(each.get("path"), str):
                yield f"{here}pyproject.toml", each["path"]
            if each.get("workspace") is True:
                yield from _workspace(source, folder)
    if "workspace" in uv:
        yield from _members(source, folder, _table(uv, "workspace"))
    requirements = [*_texts(_table(pyproject, "project").get("dependencies"))]
    for group in _table(pyproject, "project", "optional-dependencies").values():
        requirements += _texts(group)
    for text in requirements:
        if match := re.search(r"@\s*file://(/[^\s;]+)", text):
            yield f"{here}pyproject.toml", match[1]
    for entry in _table(pyproject, "tool", "poetry", "dependencies").values():
        if isinstance(entry, dict) and isinstance(entry.get("path"), str):
            yield f"{here}pyproject.toml", entry["path"]
    yield from _requirements(source, folder, "requirements.txt", set())
    cargo = toml(source / folder / "Cargo.toml")
    for table in ("dependencies", "dev-dependencies", "build-dependencies"):
        for scope in (cargo, _table(cargo, "workspace")):
            for entry in _table(scope, table).values():
                if isinstance(entry, dict) and isinstance(entry.get("path"), str):
                    yield f"{here}Cargo.toml", entry["path"]


def _workspace(source: Path, folder: str) -> Iterator[tuple[str, str]]:
    """The root of the uv workspace that `folder` is a member of."""
    above = folder
    while True:
        if "workspace" in _table(toml(source / above / "pyproject.toml"), "tool", "uv"):
            yield f"{folder}/pyproject.toml", posixpath.relpath(above, folder)
            return
        if above == ".":
            break
        above = posixpath.dirname(above) or "."
    raise Refused(
        "outside-source",
        f"cannot publish {source}",
        f"{posixpath.normpath(f'{folder}/pyproject.toml')} is a member of a uv workspace with its root outside of it",
        "publish the workspace's root, and name the member by --cwd",
    )


def _members(source: Path, folder: str, workspace: dict[str, Any]) -> Iterator[tuple[str, str]]:
    excluded = {place for glob in _texts(workspace.get("exclude")) for place in (source / folder).glob(glob)}
    for glob in _texts(workspace.get("members")):
        if glob.startswith("/") or ".." in glob.split("/"):
            yield f"{folder}/pyproject.toml", glob
            continue
        for place in sorted((source / folder).glob(glob)):
            if place not in excluded and (place / "pyproject.toml").is_file():
                yield f"{folder}/pyproject.toml", posixpath.relpath(str(place), str(source / folder))


def _requirements(source: Path, folder: str, name: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    file = posixpath.normpath(f"{folder}/{name}")
    if file in seen:
        return
    seen.add(file)
    try:
        text = (source / file).read_text("utf-8", "replace")
    except OSError:
        return
    beside = posixpath.relpath(posixpath.dirname(file) or ".", folder)
    for line in text.splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if match := re.match(r"(?:-r|--requirement|-c|--constraint)[\s=]*(\S+)", line):
            further = posixpath.normpath(f"{beside}/{match[1]}")
            yield file, match[1] if match[1].startswith("/") else further
            yield from _requirements(source, folder, further, seen)
        elif match := re.match(
            r"(?:(?:-e|--editable)[\s=]*)?(?:[\w.-]+\s*@\s*)?(?:file://)?(\.{0,2}/[^\s;\[]*|\.)(?:\[|\s|;|$)", line
        ):
            yield file, match[1] if match[1].startswith("/") else posixpath.normpath(f"{beside}/{match[1]}")


def _inside(source: Path, folder: str, file: str, path: str) -> str:
    absolute = path if path.startswith("/") else f"{source}/{folder}/{path}"
    inside = posixpath.relpath(posixpath.normpath(absolute), str(source))
    if inside == ".." or inside.startswith("../"):
        raise Refused(
            "outside-source",
            f"cannot publish {source}",
            f"{posixpath.normpath(file)} depends on {path}, which lies outside of it",
            "publish a folder that holds both and name the project by --cwd, or depend on a released version",
        )
    if path.startswith("/"):
        raise Refused(
            "outside-source",
            f"cannot publish {source}",
            f"{posixpath.normpath(file)} depends on the absolute path {path}, which another box does not have",
            "write it relative to the project",
        )
    return inside


def _table(document: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        value = document.get(name)
        document = value if isinstance(value, dict) else {}
    return document


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []

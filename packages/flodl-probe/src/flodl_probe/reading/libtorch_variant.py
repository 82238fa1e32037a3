"""A libtorch variant: `<root>/libtorch/<variant>/` with `lib/`, metadata in `.arch`, and a wheel under `site/`."""

from __future__ import annotations

from pathlib import Path

from flodl_probe.facts import Libtorch
from flodl_wire.libtorch import pointers

_FAMILIES = ("precompiled", "builds")


def find(given: str | None, arch: str | None, project: Path | None, home: Path) -> Libtorch | None:
    """The variant that holds for this host: the one given, the one its `arch:` names, the project's active one, the
    user's. None when no variant is chosen anywhere (then the torch of the environment holds).
    """
    if given is not None:
        return _given(Path(given).expanduser())
    roots = [folder / "libtorch" for folder in (project, home / ".flodl") if folder is not None]
    if arch:
        places = [root / arch for root in roots]
        there = next((place for place in places if place.is_dir()), None)
        return _variant(there) if there else Libtorch(str(places[0]), why="there is no such folder")
    for root in roots:
        for pointer in pointers(root):  # this host's own goes ahead
            if pointer.is_file():
                return _pointed(pointer)
    return None


def _given(path: Path) -> Libtorch:
    """A variant, a pointer file `.active*`, or a root with one."""
    if path.is_file():
        return _pointed(path)
    if (path / ".active").is_file():
        return _pointed(path / ".active")
    if not path.is_dir():
        return Libtorch(str(path), why="there is no such folder")
    if not (path / "lib").exists() and any((path / family).is_dir() for family in _FAMILIES):
        return Libtorch(str(path), why="it holds variants and no .active that names one")
    return _variant(path)


def _pointed(pointer: Path) -> Libtorch:
    try:
        name = pointer.read_text("utf-8", "replace").strip()
    except OSError as err:
        return Libtorch(str(pointer), why=f"it cannot be read: {err.strerror}")
    if not name:
        return Libtorch(str(pointer), why="it names no variant")
    target = pointer.parent / name
    if not target.is_dir():
        return Libtorch(str(target), why=f"{pointer} names it, and it is not there")
    return _variant(target)


def _variant(path: Path) -> Libtorch:
    info = metadata(path / ".arch")
    libraries = ("libtorch.so", "libtorch.dylib", "libtorch_cpu.so", "libtorch_cpu.dylib")
    if not (path / "lib").is_dir():
        return Libtorch(str(path), info, why="it has no lib/")
    if not any((path / "lib" / name).exists() for name in libraries):
        return Libtorch(str(path), info, why="its lib/ holds no libtorch")
    return Libtorch(str(path), info, valid_dir=True)


def metadata(file: Path) -> dict[str, str]:
    """`name=value` or `name: value` lines."""
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return {}
    info = {}
    for line in text.splitlines():
        mark = min((line.find(sign) for sign in "=:" if sign in line), default=-1)
        if mark > 0 and not line.lstrip().startswith("#"):
            info[line[:mark].strip().lower()] = line[mark + 1 :].strip().strip("\"'")
    return info

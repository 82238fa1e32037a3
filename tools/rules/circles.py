"""No files that need each other in a ring: what is read first must be readable first."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from tools.rules.finding import Finding, Tree
from tools.rules.imports import imported


def no_circles(tree: Tree) -> Iterator[Finding]:
    """At most one per package. Imports inside functions and for the type checker are arrows too; handing names on in an
    ``__init__.py`` is none.
    """
    for package, files in _by_package(tree).items():
        modules = {_module(file): file for file in files if not file.endswith("/__init__.py")}
        arrows = {
            file: {modules[name] for name, _ in imported(tree.module(file)) if name in modules} - {file}
            for file in modules.values()
        }
        try:
            TopologicalSorter(arrows).prepare()
        except CycleError as error:
            ring = [file.removeprefix(f"{package}/") for file in reversed(error.args[1])]
            first = f"{package}/{ring[0]}"
            names = {name for name, file in modules.items() if file == f"{package}/{ring[1]}"}
            line = next(line for name, line in imported(tree.module(first)) if name in names)
            yield Finding(
                first,
                line,
                f"a circle: {' → '.join(ring)}",
                "none of them can be understood, tested or moved without the others",
                "move what two of them need into the one below, or into a file of its own",
            )


def _by_package(tree: Tree) -> dict[str, list[str]]:
    """Folder of a distribution's sources → its files; and the tools."""
    packages: dict[str, list[str]] = {}
    for file in tree.python:
        parts = file.split("/")
        if parts[0] == "packages" and parts[2:3] == ["src"]:
            packages.setdefault("/".join(parts[:4]), []).append(file)
        elif parts[0] == "tools":
            packages.setdefault("tools", []).append(file)
    return packages


def _module(file: str) -> str:
    parts = file.removesuffix(".py").split("/")
    return ".".join(parts[3:] if parts[0] == "packages" else parts)

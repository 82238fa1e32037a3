"""What a tree consists of, and which links may be part of it. Pure.

A link travels when it stays inside whatever the tree is called and wherever it lies: so absolute targets and targets
that step above the root (also on a detour that comes back) do not.
"""

from __future__ import annotations

import heapq
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

SIDECAR = ".fdl-run.sha256"
MANIFEST = ".fdl-run.yml"
OWN = (MANIFEST, SIDECAR)
# Folders that no run needs from another box, by name; `libtorch` only at the root.
BUILT = (
    *(".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "target", "build", "dist", "node_modules", ".tox", ".nox"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", ".cache", ".eggs"),
    ".fdl",  # a farm's folder: keys
)
BUILT_AT_ROOT = ("libtorch", "runs")
_MAX_HOPS = 40  # the kernel's own bound on links in one path


class FileStat(NamedTuple):
    """What tells that a file is still the one we looked at; `mode` holds the permission bits alone."""

    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    mode: int


@dataclass(frozen=True)
class LeftOut:
    path: str
    why: str


@dataclass
class Tree:
    """Paths are relative, with '/', as the file system spells them (undecodable bytes as lone surrogates)."""

    files: dict[str, FileStat] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)  # path: target
    dirs: list[str] = field(default_factory=list)  # empty ones, which no file implies
    left_out: list[LeftOut] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    by: str = "walk"  # or git
    inner: bool = False  # it holds a repository of its own

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.files.values())

    def largest(self, count: int = 5) -> list[tuple[str, int]]:
        sizes = ((-each.size, path) for path, each in self.files.items())
        return [(path, -size) for size, path in heapq.nsmallest(count, sizes)]

    def holds_folder(self, folder: str) -> bool:
        start = posixpath.normpath(folder) + "/"
        return start == "./" or any(
            path.startswith(start) for group in (self.files, self.links, self.dirs) for path in group
        )


def leaves(path: str, target: str, read: Callable[[str], str | None]) -> str:
    """Why the link at `path` would reach outside of its tree, "" when it does not (a dangling one or a circle stays).

    `read(path)` gives the target of another link of the tree, None for anything else.
    """
    if target.startswith("/"):
        return "its target is absolute"
    here = path.split("/")[:-1]
    steps, hops = target.split("/"), 0
    while steps:
        step = steps.pop(0)
        if step in ("", "."):
            continue
        if step == "..":
            if not here:
                return "it leads out of the source"
            here.pop()
            continue
        further = read("/".join([*here, step]))
        if further is None:
            here.append(step)
            continue
        hops += 1
        if hops > _MAX_HOPS:
            return ""
        if further.startswith("/"):
            return "it leads out of the source by another link"
        steps = further.split("/") + steps
    return ""


def drop_leaving_links(tree: Tree) -> None:
    """Links that reach outside go to `left_out`, with a warning each."""
    links = dict(tree.links)
    for path, target in links.items():
        why = leaves(path, target, links.get)
        if why:
            del tree.links[path]
            tree.left_out.append(LeftOut(path, f"link to {target}: {why}"))
            tree.warnings.append(f"{path} -> {target} does not travel: {why}")

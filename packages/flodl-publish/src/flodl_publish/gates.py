"""The builds that gate a publish: the active variant's, and those that were asked for besides."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from flodl_publish import building, copying, mirror, recipe
from flodl_publish.building import Built, Work
from flodl_publish.index import INDEX, Index
from flodl_publish.place import Place
from flodl_publish.settings import Settings
from flodl_publish.tree import Tree
from flodl_wire import libtorch
from flodl_wire.faults import Refused
from flodl_wire.libtorch import Variant


def variants(names: list[str], project: Path | None, *, no_build: bool) -> list[Variant | None]:
    """Those to build against, the active one (or the environment's own torch) first; none with `no_build`."""
    if no_build:
        if names:
            raise Refused(
                "usage", "cannot use --gate with --no-build", "one asks for what the other skips", exit_code=2
            )
        return []
    return [libtorch.active(project), *(libtorch.named(name, project) for name in names)]


def build_all(
    settings: Settings,
    place: Place,
    tree: Tree,
    others: list[str],
    hashes: dict[str, str],
    variants: list[Variant | None],
    say: Callable[[str], None],
) -> list[Built]:
    """Each variant's build, in a copy of the tree of its own: what a build leaves behind is never served."""
    builds: list[Built] = []
    for variant in variants:
        where, state = place.tree, place.state
        if recipe.choose(place.tree / settings.cwd, settings.build).kind != "nothing":
            state = place.gate(variant.name if variant else "environment")
            where = state / "tree"
            _copy_for_gate(place, tree, hashes, where, state)
        work = Work(where, settings.cwd, settings.build, settings.bin, state)
        builds.append(building.build(work, variant, say, others if not builds else ()))
    return builds


def _copy_for_gate(place: Place, tree: Tree, hashes: dict[str, str], where: Path, state: Path) -> None:
    served = Tree(links=tree.links, dirs=tree.dirs)
    known = Index()
    for path, sha256 in hashes.items():
        found = copying.of_stat(os.lstat(f"{place.tree}/{path}"))
        served.files[path] = found
        known.put(path, found, sha256)
    state.mkdir(parents=True, exist_ok=True)
    ours = Index.load(state / INDEX)
    try:
        mirror.mirror(place.tree, served, where, known, ours, strict=False)
    finally:
        with contextlib.suppress(OSError):
            ours.save(state / INDEX)


def toolchain(builds: list[Built], place: Place, settings: Settings) -> str:
    if builds:
        return builds[0].toolchain
    project = place.tree / settings.cwd
    return building.toolchain(recipe.choose(project, settings.build), project)

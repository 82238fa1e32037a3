"""What can be said of a tree before anything is touched: what it lacks, what it holds back although it is needed."""

from __future__ import annotations

import posixpath
from pathlib import Path

from flodl_publish import imports, projects, recipe, selection
from flodl_publish.settings import Settings
from flodl_publish.tree import Tree
from flodl_wire.faults import Refused


def check(settings: Settings, source: Path, tree: Tree) -> None:
    if not tree.files:
        raise Refused("empty", f"cannot publish {settings.source.origin}", "it holds no file that travels")
    if settings.cwd and not tree.holds_folder(settings.cwd):
        why = "nothing in it travels" if (source / settings.cwd).is_dir() else "there is no such folder in the source"
        raise Refused("no-cwd", f"cannot publish with --cwd {settings.cwd}", why)
    _check_program(settings, source, tree)
    for path, named_by in projects.needed(source, settings.cwd).items():
        file = source / path
        if path == "." or tree.holds_folder(path) or path in tree.files:
            continue
        rule = _rule(source, tree, path)
        what = f"cannot publish {settings.source.origin}"
        if not file.exists():
            raise Refused("no-dependency", what, f"{named_by} depends on {path}, and there is no such path")
        raise Refused("no-dependency", what, f"{named_by} depends on {path}, which does not travel: {rule}")


def _check_program(settings: Settings, source: Path, tree: Tree) -> None:
    """Where nothing is built, a program that is not there now will not be there later either."""
    program = posixpath.normpath(f"{settings.cwd or '.'}/{settings.bin}")
    if program in tree.files or program in tree.links:
        return
    if recipe.choose(source / settings.cwd, settings.build).kind != "nothing":
        return
    what, fix = f"cannot publish with --bin {settings.bin}", "--bin is relative to the project's folder (--cwd)"
    if (source / program).is_dir():
        raise Refused("no-bin", what, "it is a folder", fix)
    if (source / program).exists():
        raise Refused("no-bin", what, f"it does not travel: {_rule(source, tree, program)}", fix)
    import difflib

    close = difflib.get_close_matches(program, tree.files, 1)
    near = f"; did you mean {posixpath.relpath(close[0], settings.cwd or '.')}?" if close else ""
    raise Refused("no-bin", what, f"there is no such file in the source{near}", fix)


def warn(settings: Settings, source: Path, tree: Tree) -> None:
    """Modules that the program imports here and that would be missing there, by the rule that keeps them out."""
    program = posixpath.normpath(f"{settings.cwd or '.'}/{settings.bin}")
    if not program.endswith(".py") or not (source / program).is_file():
        return
    places = imports.roots(settings.cwd, program)
    for path, importer in imports.closure(source, program, places).items():
        if path not in tree.files:
            by = f"{importer} imports it" if importer else "it is what workers run"
            tree.warnings.append(f"{path} does not travel, and {by}: {_rule(source, tree, path)}")


def _rule(source: Path, tree: Tree, path: str) -> str:
    if tree.by == "git":
        rule = selection.ignore_rule(source, path)
        return f"git ignores it by {rule}" if rule else "git does not track it"
    return f"{selection.is_built(path) or path} counts as an environment, a cache or a build"

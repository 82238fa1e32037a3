"""A word that is neither ours nor the project's: another tool of that name, or a helpful no."""

from __future__ import annotations

import os
import sys

from flodl_cli import extensions, manifest, project_files, sibling
from flodl_cli.command import Command
from flodl_cli.command_line import CommandLine
from flodl_cli.project_files import Project
from flodl_cli.suggest import did_you_mean
from flodl_cli.verbs import BUILTINS, VERBS
from flodl_wire import exits
from flodl_wire.faults import Refused


def run(line: CommandLine, project: Project | None, commands: dict[str, Command]) -> int:
    """Run `fdl-<word>` from PATH or the entry point `<word>`; else Refused (exit 127) with what was probably meant."""
    assert line.command is not None
    word = line.command
    found = extensions.tools_named(word)
    if len(set(found)) > 1:
        why = f"{' and '.join(found)} both offer it"
        raise Refused("name-clash", f"cannot tell which {word!r} is meant", why, "uninstall one of the two")
    if not found:
        raise unknown(word, project, commands)
    path = sibling.find(extensions.PREFIX + word)
    if path is not None:
        sibling.hand_over([path, *line.rest])
    return _call(next(point for point in extensions.entry_points() if point.name == word), line.rest)


def _call(point: extensions.EntryPoint, rest: list[str]) -> int:
    from importlib import import_module

    module, _, attribute = point.value.partition(":")
    try:
        target = import_module(module)
        for step in attribute.split(".") if attribute else []:
            target = getattr(target, step)
    except (ImportError, AttributeError) as err:
        fix = f"pip install --force-reinstall {point.package}"
        raise Refused("no-tool", f"cannot run {point.name!r}", f"{point.value} cannot be loaded: {err}", fix) from None
    sys.argv = [f"fdl {point.name}", *rest]
    return int(target(rest) or 0)  # type: ignore[operator]


def unknown(word: str, project: Project | None, commands: dict[str, Command]) -> Refused:
    """The fault for a word that means nothing here, with what was probably meant."""
    if project is not None and word in project_files.overlays(project.root):
        why, fix = f"{word!r} is an environment, not a command", f"write it as fdl @{word} <command>"
    elif project is not None and os.path.isfile(example := os.path.join(project.root, f"fdl.{word}.yml.example")):
        why = f"{word!r} is an environment of which there is only an example"
        fix = f"cp {example} {example[: -len('.example')]}, fill it in, and write fdl @{word} <command>"
    else:
        known = [*manifest.names(commands), *VERBS, *BUILTINS, *extensions.words()]
        nested = [name for name in manifest.names(commands) if name.split()[-1] == word]
        hint = nested[0] if nested else did_you_mean(word, known)
        why = "there is no such command" + (f"; did you mean `fdl {hint}`?" if hint else "")
        if project is None:
            why += "; and no fdl.yml lies here or above, so there are no commands of a project"
            way = project_files.way_to_a_manifest(project_files.start_folder())
            way = "`fdl init` writes a project" if way.startswith("`fdl init`") else way
            fix = f"{way}; `fdl help` lists what there is"
        else:
            fix = f"`fdl help` lists the commands of {project.manifest}"
    return Refused("no-command", f"cannot run {word!r}", why, fix, exit_code=exits.NO_COMMAND)

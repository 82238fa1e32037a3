"""A word that is neither ours nor the project's: another tool of that name, or a helpful no."""

from __future__ import annotations

import sys

from flodl_cli import manifest, project_files, sibling
from flodl_cli.command_line import CommandLine
from flodl_cli.manifest import Command
from flodl_cli.project_files import Project
from flodl_cli.suggest import did_you_mean
from flodl_cli.verbs import BUILTINS, VERBS
from flodl_wire import exits
from flodl_wire.faults import Refused

GROUP = "fdl.verbs"


def run(line: CommandLine, project: Project | None, commands: dict[str, Command]) -> int:
    """Run `fdl-<word>` from PATH or the entry point `<word>`; else Refused (exit 127) with what was probably meant."""
    assert line.command is not None
    word = line.command
    if "/" not in word:
        tool = sibling.find(f"fdl-{word}")
        if tool is not None:
            sibling.hand_over([tool, *line.rest])
        code = _run_entry_point(word, line.rest)
        if code is not None:
            return code
    raise unknown(word, project, commands)


def _run_entry_point(word: str, rest: list[str]) -> int | None:
    from importlib import metadata

    found = [point for point in metadata.entry_points(group=GROUP) if point.name == word]
    if not found:
        return None
    if len({point.value for point in found}) > 1:
        where = " and ".join(sorted({point.value for point in found}))
        raise Refused(
            "name-clash", f"cannot tell which {word!r} is meant", f"{where} both offer it", "uninstall one of the two"
        )
    sys.argv = [f"fdl {word}", *rest]
    return int(found[0].load()(rest) or 0)


def unknown(word: str, project: Project | None, commands: dict[str, Command]) -> Refused:
    """The fault for a word that means nothing here, with what was probably meant."""
    if project is not None and word in project_files.overlays(project.root):
        why, fix = f"{word!r} is an environment, not a command", f"write it as fdl @{word} <command>"
    else:
        known = [*manifest.names(commands), *VERBS, *BUILTINS]
        nested = [name for name in manifest.names(commands) if name.split()[-1] == word]
        hint = nested[0] if nested else did_you_mean(word, known)
        why = "there is no such command" + (f"; did you mean `fdl {hint}`?" if hint else "")
        if project is None:
            why += "; and no fdl.yml lies here or above, so there are no commands of a project"
            fix = "`fdl init` writes a project; `fdl help` lists what there is"
        else:
            fix = f"`fdl help` lists the commands of {project.manifest}"
    return Refused("no-command", f"cannot run {word!r}", why, fix, exit_code=exits.NO_COMMAND)

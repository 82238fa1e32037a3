"""What may come next on a line of `fdl`: from the same tables that read it."""

from __future__ import annotations

import os

from flodl_cli import command, extensions, manifest, project_files
from flodl_cli.command import Command
from flodl_cli.command_line import OPTIONS, VALUED
from flodl_cli.command_words import flags
from flodl_cli.verbs import BUILTINS, VERBS, WORDS_BEHIND
from flodl_wire.faults import Fault
from flodl_wire.modes import MODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def candidates(before: list[str], current: str) -> list[str]:
    """The words that may stand where `current` begins, behind `before` (without the program's name). Empty where the
    shell's own guess, a file, is best.
    """
    env, command, rest, open_option = _read(before)
    option, equals, value = current.partition("=")
    if open_option is not None:
        return _beginning(_values(open_option), current)
    if command is None and equals and option in VALUED:
        return [f"{option}={found}" for found in _beginning(_values(option), value)]
    if command is None:
        return _beginning([*(["@" + name for name in _overlays()]), *_first_words(env), *OPTIONS], current)
    if current.startswith("@") and (command in VERBS or command in BUILTINS):
        return _beginning(["@" + name for name in _overlays()], current)
    if command == "help":
        return _beginning(_first_words(env), current) if not rest else _below(env, rest, current)
    if command in WORDS_BEHIND:
        return _beginning(WORDS_BEHIND[command], current) if not rest else []
    if command in VERBS or command in BUILTINS:
        return []
    return _below(env, [command, *rest], current)


def _read(before: list[str]) -> tuple[str | None, str | None, list[str], str | None]:
    """The environment chosen, the command, the words behind it, and an option whose value is being typed."""
    env, index = None, 0
    while index < len(before):
        word = before[index]
        index += 1
        if word == "--":
            return env, before[index] if index < len(before) else None, before[index + 1 :], None
        if word.startswith("@"):
            env = word[1:]
        elif word in VALUED:
            if index == len(before):
                return env, None, [], word
            env = before[index] if word == "--env" else env
            index += 1
        elif word.startswith("--env="):
            env = word[6:]
        elif not word.startswith("-"):
            return env, word, before[index:], None
    return env, None, [], None


def _values(option: str) -> list[str]:
    if option == "--env":
        return _overlays()
    return list(MODES) if option == "--mode" else ["all", "0", "0,1", "cpu:1", "cpu:2"]


def _overlays() -> list[str]:
    start = project_files.nearest_manifest(project_files.start_folder())
    return project_files.overlays(os.path.dirname(start)) if start is not None else []


def _commands(env: str | None) -> dict[str, Command]:
    """Those of the project; none where something in it is wrong: a shell's prompt is no place to say it."""
    try:
        project = project_files.load(project_files.start_folder(), project_files.chosen_env(env))
        return manifest.commands_of(project) if project is not None else {}
    except Fault:
        return {}


def _first_words(env: str | None) -> list[str]:
    return [*_commands(env), *VERBS, *BUILTINS, *extensions.words()]


def _below(env: str | None, words: list[str], current: str) -> list[str]:
    """Behind a command of the project: the commands below it, and the flags it has options for."""
    try:
        found, rest = command.find(_commands(env), words)
    except Fault:
        return []
    if found is None:
        return []
    known = [word.partition("=")[0] for word in flags(found.options) if word.startswith("-")]
    return _beginning([] if rest else found.commands, current) + _beginning(
        known if current[:1] == "-" else [], current
    )


def _beginning(words: Iterable[str], current: str) -> list[str]:
    return [word for word in words if word.startswith(current)]

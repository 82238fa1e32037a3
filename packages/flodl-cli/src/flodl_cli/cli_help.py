"""`fdl help [COMMAND …]`: what there is here, or what one command is."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys

from flodl_cli import extensions, manifest, project_files, sibling
from flodl_cli.command import Command, everyone
from flodl_cli.command_line import CommandLine
from flodl_cli.command_words import words_behind
from flodl_cli.project_files import Project
from flodl_cli.verbs import BUILTINS, VERBS, Verb
from flodl_wire import exits
from flodl_wire.faults import Fault, printable
from flodl_wire.modes import MODES

USAGE = """\
fdl: finds the project, resolves its config, hands over to the tool

usage: fdl [options] [@env] <command> [words of the command ...]
"""

OPTIONS = [
    ("@ENV, --env ENV", "lay fdl.ENV.yml over fdl.yml; FDL_ENV does the same"),
    ("--gpus DEVICES", "all, a list such as 0,1, or cpu:2 for two ranks on the processor"),
    ("--mode MODE", f"how ranks average: {', '.join(MODES)}"),
    ("--resume[=RUN]", "go on from the last run's checkpoint, or from that run's or file's"),
    ("--no-append", "leave out what `append:` of the command adds"),
    ("--no-prebuild", "start at once, with what was built for the hosts before"),
    ("-v, -vv, -vvv", "say more; -q says less"),
    ("-h, --help", "this"),
    ("-V, --version", "the version of fdl"),
]


def main(line: CommandLine) -> int:
    env = project_files.chosen_env(line.env)
    words = [word for word in line.rest if word not in ("-h", "--help")]
    if words:
        return _one(words, env)
    print(overview(env), end="")
    return exits.DONE


def overview(env: str | None) -> str:
    """The help of `fdl` in this folder. A manifest that cannot be read does not keep the rest from being shown."""
    parts = [USAGE]
    try:
        project = project_files.load(project_files.start_folder(), env)
        if project is not None:
            parts.append(_project_commands(project))
    except Fault as fault:
        if fault.code == "no-overlay":  # asked for by name: not a file that is broken, a file that is not there
            raise
        parts.append(f"(the commands of this project cannot be shown. {fault})\n")
    listed = [(name, _verb_line(verb)) for name, verb in VERBS.items() if _has_verb(verb, name)]
    parts.append(_table("verbs, each answered by the flodl tool that is installed for it:", listed))
    others = [word for word in extensions.words() if word not in VERBS and word not in BUILTINS]
    if others:
        parts.append(_table("other tools installed here:", [(word, _origin(word)) for word in others]))
    parts.append(_table("fdl's own:", list(BUILTINS.items())))
    parts.append(_table("options, before the command (all words behind it are its own, untouched):", OPTIONS))
    parts.append("`fdl help COMMAND` says what one command is.\n")
    return "\n".join(parts)


def command_help(command: Command) -> str:
    """What a command of the project runs, and what lies below it."""
    lines = [f"fdl {command.name}: {printable(command.description)}".rstrip(": ")]
    lines.append(f"  defined in {command.node.place()}")
    if command.run is not None:
        behind = words_behind(command, ["..."])
        words = f" {shlex.join(behind[: behind.index('...')])}" if behind[0] != "..." else ""
        last = behind[behind.index("...") + 1 :]
        lines.append(f"  runs       {printable(command.run.strip() + words)}")
        if last:
            lines.append(f"  behind it  {printable(shlex.join(last))}")
        lines.append(f"  in         {command.folder}" + (f", service {command.docker}" if command.docker else ""))
        if command.build is not None:
            lines.append(f"  built by   {printable(command.build.strip())}")
        lines.append(
            f"  as         {'ranks on every device chosen (cluster: true)' if command.cluster else 'one process'}"
        )
        if command.mode is not None:
            lines.append(f"  mode       {command.mode}")
        if command.env:
            lines.append(f"  env        {', '.join(command.env)}")
    text = "\n".join(lines) + "\n"
    if command.commands:
        below = [(name, _mark(child)) for name, child in command.commands.items()]
        text += "\n" + _table(f"commands of fdl {command.name}:", below)
    return text


def _one(words: list[str], env: str | None) -> int:
    word = words[0]
    if word in VERBS:
        verb = VERBS[word]
        tool = sibling.require(verb.argv[0], verb.package, f"show the help of `fdl {word}`")
        sibling.hand_over([tool, *verb.argv[1:], *words[1:], "--help"])
    if word in BUILTINS:
        print(_builtin_help(word), end="")
        return exits.DONE
    project = project_files.load(project_files.start_folder(), env)
    commands = manifest.commands_of(project) if project is not None else {}
    command, rest = manifest.find(commands, words)
    if command is None or rest:
        from flodl_cli.other_tools import unknown

        raise unknown(" ".join(words), project, commands)
    print(command_help(command), end="")
    return exits.DONE


def _builtin_help(word: str) -> str:
    if word == "join-config":
        from flodl_cli.join_config import cli

        return cli.parser().format_help()
    from flodl_cli import cli_completion, cli_config, cli_init, cli_version

    texts = {
        "init": cli_init.HELP,
        "config": cli_config.HELP,
        "completion": cli_completion.HELP,
        "version": cli_version.HELP,
    }
    return texts.get(word) or f"usage: fdl help [COMMAND ...]\n\n{BUILTINS[word][:1].upper()}{BUILTINS[word][1:]}.\n"


def _project_commands(project: Project) -> str:
    commands = manifest.commands_of(project)
    layers = " + ".join(project.shown(path) for path in project.layers[::-1])
    title = f"commands of this project ({project.root}: {layers}):"
    rows = [
        (command.name, _mark(command))
        for command in everyone(commands)
        if not command.sound() or command.run is not None
    ]
    text = _table(title, rows) if rows else f"{title}\n  none yet: write `commands:` into {project.manifest}\n"
    names = project_files.overlays(project.root)
    return text + (f"  environments: {', '.join('@' + name for name in names)}\n" if names else "")


def _mark(command: Command) -> str:
    if not command.sound():
        return f"(cannot be used: `fdl help {command.name}` says why)"
    return f"{printable(command.description)}{' (cluster)' if command.cluster else ''}".strip()


def _origin(word: str) -> str:
    """Where a tool of somebody else comes from; all of them when two have the same name."""
    return printable(" and ".join(extensions.tools_named(word)))


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    width = max([12, *(len(name) for name, _ in rows)])
    room = columns() - width - 4
    text = title + "\n"
    for name, description in rows:
        first, *more = wrapped(description, room) if room >= 20 else [description]
        text += f"  {name:<{width}}  {first}".rstrip() + "\n"
        text += "".join(" " * (width + 4) + line + "\n" for line in more)
    return text


def columns() -> int:
    """Of the terminal that reads this; as many as one likes where none does (a pipe, a page of the docs)."""
    try:
        return os.get_terminal_size(1).columns if sys.stdout.isatty() else 1 << 16
    except OSError:
        return 1 << 16


def wrapped(text: str, room: int) -> list[str]:
    """`text` in lines of at most `room` signs, broken between words where there is a blank."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append(word)
        else:
            lines[-1] += (" " if lines[-1] else "") + word
    return lines


def _verb_line(verb: Verb) -> str:
    missing = sibling.find(verb.argv[0]) is None
    return verb.line + (f"   (pip install {verb.package})" if missing else "")


def _has_verb(verb: Verb, name: str) -> bool:
    """False when the tool is installed in a version that does not know the verb (every verb is a file of its own)."""
    if len(verb.argv) == 1:
        return True
    spec = importlib.util.find_spec(verb.package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        return True
    return any(os.path.exists(os.path.join(place, f"cli_{name}.py")) for place in spec.submodule_search_locations)

"""The words of an `fdl` command line: what is ours, which command, and what belongs to the command.

Everything after the command's name is the command's own, byte for byte: `-v`, `--lr -1`, `--` and `@file` included.
Imports nothing, because `fdl status` is typed all day.
"""

from __future__ import annotations

from flodl_cli.verbs import VERBS

VERBOSITY = {
    "-q": "quiet",
    "--quiet": "quiet",
    "-v": "verbose",
    "--verbose": "verbose",
    "-vv": "debug",
    "-vvv": "trace",
}
VALUED = ("--env", "--gpus", "--mode")
SWITCHES = ("--no-append", "--no-prebuild")
RESUME = "--resume"  # alone: the last run; a word behind it would be the command's, so a value takes "="
OPTIONS = (*VALUED, RESUME, *SWITCHES, *VERBOSITY, "-h", "--help", "-V", "--version")


class CommandLine:
    """What was typed. `command` is None when only options stand there; `rest` follows the command, untouched."""

    __slots__ = ("append", "command", "env", "gpus", "mode", "prebuild", "rest", "resume", "verbosity")

    def __init__(self) -> None:
        self.env: str | None = None
        self.gpus: str | None = None
        self.mode: str | None = None
        self.resume: str | None = None
        self.append = True
        self.prebuild = True
        self.verbosity: str | None = None
        self.command: str | None = None
        self.rest: list[str] = []


def parse(argv: list[str]) -> CommandLine:
    """Read `argv` (without the program's name). Raises Refused (exit 2) for an option that cannot be meant."""
    line = CommandLine()
    index = 0
    while index < len(argv):
        word = argv[index]
        index += 1
        if word == "--":
            if index < len(argv):
                line.command, line.rest = argv[index], argv[index + 1 :]
            break
        if word.startswith("@"):
            _choose_env(line, word[1:], word)
        elif word in VERBOSITY:
            line.verbosity = VERBOSITY[word]
        elif word in SWITCHES:
            setattr(line, word[5:], False)
        elif word in ("-h", "--help"):
            line.command, line.rest = "help", argv[index:]
            break
        elif word in ("-V", "--version"):
            line.command = "--version"
            break
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            if name == RESUME:
                _set(line, name, value if equals else "latest")
                continue
            if name not in VALUED:
                raise _usage(f"cannot use the option {word!r}", _no_such_option(name), "`fdl help` lists them")
            if not equals:
                if index == len(argv):
                    raise _usage(f"cannot use {name}", "its value is missing", f"write it as {_EXAMPLE[name]}")
                value = argv[index]
                index += 1
            _set(line, name, value)
        else:
            line.command, line.rest = word, argv[index:]
            break
    if line.command in VERBS or line.command in ("config", "help", "join-config"):
        _take_env_from_verb(line)
    return line


_EXAMPLE = {
    "--env": "--env cluster (or @cluster)",
    "--gpus": "--gpus all, 0,1 or cpu:2",
    "--mode": "--mode cpu_cadence",
    RESUME: "--resume (the last run) or --resume=RUN",
}


def _set(line: CommandLine, name: str, value: str) -> None:
    if name == "--env":
        _choose_env(line, value, f"--env {value}")
        return
    field = name[2:]
    if not value:
        raise _usage(f"cannot use {name}", "its value is empty", f"write it as {_EXAMPLE[name]}")
    if getattr(line, field) is not None:
        raise _usage(
            f"cannot use {name} twice", f"it says {getattr(line, field)!r} and {value!r}", "keep one of the two"
        )
    setattr(line, field, value)


def _choose_env(line: CommandLine, name: str, spelled: str) -> None:
    if not name:
        raise _usage(
            f"cannot use {spelled.strip()!r}", "it names no environment", "write @cluster to use fdl.cluster.yml"
        )
    if "/" in name or "\0" in name or name.startswith("."):
        raise _usage(
            f"cannot use {spelled!r}", "an environment is named, not located", "write @cluster to use fdl.cluster.yml"
        )
    if line.env is not None and line.env != name:
        raise _usage("cannot use two environments", f"@{line.env} and @{name} disagree", "keep one of the two")
    line.env = name


def _take_env_from_verb(line: CommandLine) -> None:
    """Behind a verb (and before `--`) a word that begins with `@` chooses an overlay, unless it is a file that holds a
    token (`join --token @/etc/flodl/token`).
    """
    kept: list[str] = []
    for index, word in enumerate(line.rest):
        if word == "--":
            kept += line.rest[index:]
            break
        if word.startswith("@") and kept[-1:] != ["--token"]:
            _choose_env(line, word[1:], word)
        else:
            kept.append(word)
    line.rest = kept


def _no_such_option(name: str) -> str:
    from flodl_cli.suggest import did_you_mean

    hint = did_you_mean(name, OPTIONS)
    return "fdl has no such option" + (
        f"; did you mean {hint}?" if hint else "; options of a command stand behind its name"
    )


def _usage(what: str, why: str, fix: str) -> Exception:
    from flodl_wire.faults import usage

    return usage(what, why, fix)

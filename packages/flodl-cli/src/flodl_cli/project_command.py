"""Running a command of the project: finding it, building for its hosts, becoming it."""

from __future__ import annotations

import os
import sys

from flodl_cli import manifest, project_files
from flodl_cli.command import Command
from flodl_cli.command_line import CommandLine
from flodl_cli.planned_run import Run
from flodl_cli.project_files import Project
from flodl_cli.run_plan import plan_run
from flodl_wire import exits
from flodl_wire.faults import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def run_project_command(line: CommandLine) -> int:
    """Find the command, become it. Returns only when nothing could be started."""
    assert line.command is not None
    env = project_files.chosen_env(line.env)
    project = project_files.load(project_files.start_folder(), env, offer=offer_copy)
    commands = manifest.commands_of(project) if project is not None else {}
    command, tokens = manifest.find(commands, [line.command, *line.rest])
    if project is None or command is None:
        from flodl_cli import other_tools

        return other_tools.run(line, project, commands)
    _check_clash(command, project)
    if command.run is None:
        return _not_runnable(command, tokens)
    run = plan_run(project, command, tokens, line)
    if line.verbosity != "quiet":
        for note in run.notes:
            print(f"fdl: {note}", file=sys.stderr)
    if run.prebuild is not None and run.config is not None:
        from flodl_cli.building import build_all, what_is_there
        from flodl_wire import blob, environ

        _put_our_python_first()
        quiet = line.verbosity == "quiet"
        run.config.sites = build_all(run.prebuild, quiet=quiet) if line.prebuild else what_is_there(run.prebuild)
        run.env[environ.CONFIG_JSON] = blob.encode(run.config)
    return _become(run)


def offer_copy(example: str) -> bool:
    """Ask at a terminal whether the example becomes the manifest; anywhere else it is nobody's decision to take."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        return False
    target = os.path.splitext(example)[0]
    question = f"fdl: there is no {target}, but an example of it. Copy it there? [y/N] "
    answer = ""
    try:
        print(question, end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):  # Ctrl-C, Ctrl-D: what comes next has a line of its own
            print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        return False
    temporary = f"{target}.{os.getpid()}"
    try:
        with open(example, "rb") as source, open(temporary, "xb") as copy:
            copy.write(source.read())
        os.rename(temporary, target)
    except OSError as err:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise Refused("unwritable", f"cannot write {target}", err.strerror or str(err), "copy it by hand") from None
    return True


def _check_clash(command: Command, project: Project) -> None:
    from flodl_cli.extensions import tools_named

    word = command.name.split()[0]
    others = tools_named(word)
    if others:
        raise Refused(
            "name-clash",
            f"cannot tell which {word!r} is meant",
            f"{project.manifest} has a command of that name, and {others[0]} is a tool of that name",
            "give the command another name, or take the tool off PATH",
        )


def _not_runnable(command: Command, tokens: list[str]) -> int:
    """A group of commands: without one of its names there is nothing to run."""
    from flodl_cli.suggest import did_you_mean

    if not tokens or tokens[0] in ("-h", "--help"):
        from flodl_cli.cli_help import command_help

        print(command_help(command), end="", file=sys.stdout if tokens else sys.stderr)
        return exits.DONE if tokens else exits.USAGE
    hint = did_you_mean(tokens[0], command.commands)
    raise Refused(
        "no-command",
        f"cannot run {command.name} {tokens[0]}",
        "there is no such command" + (f"; did you mean {command.name} {hint}?" if hint else ""),
        f"`fdl help {command.name}` lists them",
        exit_code=exits.NO_COMMAND,
    )


def _become(run: Run) -> NoReturn:
    """Replace this process, so that signals and the exit code are the command's own."""
    for name, value in run.env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _put_our_python_first()
    try:
        os.chdir(run.folder)
    except OSError as err:
        raise Refused("no-folder", f"cannot enter {run.folder}", err.strerror or str(err)) from None
    os.environ["PWD"] = run.folder
    if run.resumes:
        _check_resume()
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(run.argv[0], run.argv)
    except FileNotFoundError:
        fix = "is it installed? a script of the project is called by its path, e.g. ./train.sh"
        raise Refused(
            "no-command", f"cannot run {run.argv[0]!r}", "there is no such program", fix, exit_code=exits.NO_COMMAND
        ) from None
    except OSError as err:
        raise Refused(
            "no-exec", f"cannot run {run.argv[0]!r}", err.strerror or str(err), exit_code=exits.NO_COMMAND
        ) from None


def _check_resume() -> None:
    """A mistyped name is told before the program has loaded everything. From the folder that it begins in."""
    from pathlib import Path

    from flodl_wire import checkpoints, environ

    checkpoints.check(os.environ[environ.RESUME], Path(os.environ.get(environ.RUN_DIR) or ".").absolute() / "runs")


def _put_our_python_first() -> None:
    """Let `python` be the one that runs fdl, as the agent does for ranks, unless the user activated another."""
    active = os.environ.get("VIRTUAL_ENV")
    if sys.prefix == sys.base_prefix or (active and os.path.realpath(active) != os.path.realpath(sys.prefix)):
        return
    folder = os.path.dirname(sys.executable)
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if path[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, *path])

"""Running a command of the project: what process it becomes, where, and in which environment.

`plan_run` decides everything and touches nothing, so that each rule is a line of a test; `run_project_command` acts.
"""

from __future__ import annotations

import os
import sys

from flodl_cli import manifest, project_files, shell_line, sibling
from flodl_cli.command_line import CommandLine
from flodl_cli.manifest import Command
from flodl_cli.project_files import Project
from flodl_wire import environ, exits
from flodl_wire.faults import Fault, Refused, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from flodl_wire.config import Cluster
    from flodl_wire.devices import Devices

_RANKS_HINT = "for two ranks on its processor: fdl --gpus cpu:2"


class Run:
    """What is about to happen: `argv` in `folder`, `env` laid over the environment (None = unset), notes for stderr."""

    __slots__ = ("argv", "env", "folder", "notes")

    def __init__(self, argv: list[str], folder: str) -> None:
        self.argv = argv
        self.folder = folder
        self.env: dict[str, str | None] = {}
        self.notes: list[str] = []


def run_project_command(line: CommandLine) -> int:
    """Find the command, become it. Returns only when nothing could be started."""
    assert line.command is not None
    env = project_files.chosen_env(line.env)
    project = project_files.load(project_files.start_folder(), env)
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
    return _become(run)


def plan_run(project: Project, command: Command, tokens: list[str], line: CommandLine) -> Run:
    """Decide how `command` runs. Raises Refused."""
    assert command.run is not None
    run = Run(shell_line.argv_of(command.run, tokens, f"fdl {command.name}"), command.folder)
    run.env = {environ.CONFIG_JSON: None, **command.env}
    if project.env is not None:
        run.env[environ.FDL_ENV] = project.env
    if line.verbosity is not None:
        run.env[environ.VERBOSITY] = line.verbosity
    _note_misplaced_env(run, project, tokens, command)
    mode = command.mode if line.mode is None else manifest.parse_mode(line.mode, "--mode", exits.USAGE)
    block = project.config.get("cluster")
    cluster = None
    if block is not None:
        from flodl_cli import cluster_block

        cluster = cluster_block.parse(block)
    if environ.CLUSTER_JSON in os.environ:
        return run
    if command.cluster:
        return _plan_cluster_command(run, project, command, line, cluster, mode)
    if line.mode is not None:
        fix = f"mark it `cluster: true` in {command.node.place()}, or leave --mode out"
        raise usage("cannot use --mode", f"{command.name!r} is no cluster command: it runs as one process", fix)
    if cluster is not None:
        run.notes.append(
            f"{command.name!r} is not marked `cluster: true`: it runs here alone, and no window opens for other hosts"
        )
    if line.gpus is not None:
        _mask_single(run, line.gpus, command)
    return run


def _plan_cluster_command(
    run: Run, project: Project, command: Command, line: CommandLine, cluster: Cluster | None, mode: str | None
) -> Run:
    from flodl_cli import cluster_env, gpus

    devices = gpus.read(line.gpus) if line.gpus is not None else None
    if cluster is not None:
        if devices is not None:
            cluster = cluster_env.with_local_devices(cluster, devices)
        return _plan_launch(run, project, command, cluster, mode)
    devices = _devices_here(run, devices, command, fewest=1 if mode == "torch" else 2)
    if devices is not None:
        return _plan_launch(run, project, command, cluster_env.single_host(devices, project.root), mode)
    if mode is not None:
        run.env[environ.MODE] = mode
        if line.mode is not None:
            run.notes.append(f"one process has nobody to average with: --mode {line.mode} has no effect")
    return run


def _devices_here(run: Run, asked: Devices | None, command: Command, fewest: int) -> Devices | None:
    """The devices of a single-host cluster on this box; None when it shall be one process (with a note why).

    `fewest` make a cluster: 1 in mode torch, whose scripts need torchrun's environment also when they are alone.
    """
    from flodl_cli import gpus
    from flodl_wire.devices import CpuDevices, GpuDevices, count

    if isinstance(asked, CpuDevices) or (asked is not None and asked.indices is not None):
        if isinstance(asked, GpuDevices):
            gpus.check_present(asked.indices or [], f"{_RANKS_HINT} {command.name}")
        if (count(asked) or 0) >= fewest:
            return asked
        run.env.update(gpus.mask([] if isinstance(asked, CpuDevices) else asked.indices or []))
        return None
    if asked is None:
        try:
            found = gpus.visible()
        except Fault as fault:  # nobody asked for GPUs: the command can run without the count
            if fewest == 1:
                raise
            run.notes.append(f"{fault}; {command.name!r} runs as one process")
            return None
    else:
        found = gpus.visible()
    if len(found) >= fewest:
        if asked is None and len(found) > 1:
            run.notes.append(
                f"{len(found)} GPUs are visible: {command.name!r} gets a rank on each (--gpus 0 for one process)"
            )
        return GpuDevices(found)
    if asked is not None and not found:
        raise Refused(
            "no-device", "cannot use --gpus all", "no GPU is visible on this box", f"{_RANKS_HINT} {command.name}"
        )
    if fewest == 1:
        what = f"cannot run {command.name!r} in mode torch"
        raise Refused("no-device", what, "no GPU is visible on this box", f"{_RANKS_HINT} {command.name}")
    if found:
        run.env.update(gpus.mask(found) if asked is not None else {})
        run.notes.append(f"one GPU is visible: {command.name!r} runs as one process on it")
    else:
        run.notes.append(f"no GPU is visible: {command.name!r} runs as one process; {_RANKS_HINT} {command.name}")
    return None


def _plan_launch(run: Run, project: Project, command: Command, cluster: Cluster, mode: str | None) -> Run:
    from flodl_cli import cluster_env
    from flodl_wire.specs import LaunchConfig

    cwd = os.path.relpath(command.folder, project.root)
    config = LaunchConfig(
        cluster=cluster,
        mode=mode,
        manifest=project.manifest,
        env=command.env,
        cwd="" if cwd == os.curdir else cwd,
    )
    if cwd.split(os.sep)[0] == os.pardir:
        fix = "move it below the folder of fdl.yml, which every host has at its own `path:`"
        raise Refused(
            "outside-project",
            f"cannot run {command.name!r} on a cluster",
            f"its folder {command.folder} lies outside the project",
            fix,
        )
    window = sibling.require("flodl-window", "flodl-window", f"run {command.name!r} on several ranks")
    run.argv = [window, "launch", "--", *run.argv]
    run.folder = project.root
    for name in command.env:
        run.env.pop(name, None)
    run.env.update(cluster_env.prepare(cluster, config, command.name, project.env))
    return run


def _mask_single(run: Run, spec: str, command: Command) -> None:
    """`--gpus` for a command that is one process: what it may see."""
    from flodl_cli import gpus
    from flodl_wire.devices import CpuDevices

    devices = gpus.read(spec)
    if isinstance(devices, CpuDevices):
        if devices.count > 1:
            fix = f"mark it `cluster: true` in {command.node.place()}"
            raise usage(
                f"cannot use --gpus {spec}", f"{command.name!r} is no cluster command: it runs as one process", fix
            )
        run.env.update(gpus.mask([]))
    elif devices.indices is not None:
        gpus.check_present(devices.indices, "leave --gpus out to run on the processor")
        run.env.update(gpus.mask(devices.indices))


def _note_misplaced_env(run: Run, project: Project, tokens: list[str], command: Command) -> None:
    for token in tokens:
        if token.startswith("@") and token[1:] in project_files.overlays(project.root):
            run.notes.append(
                f"{token} stands behind the command and goes to it; for the overlay: fdl {token} {command.name}"
            )


def _check_clash(command: Command, project: Project) -> None:
    word = command.name.split()[0]
    other = sibling.find(f"fdl-{word}")
    if other is not None:
        raise Refused(
            "name-clash",
            f"cannot tell which {word!r} is meant",
            f"{project.manifest} has a command of that name, and {other} is a tool of that name",
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


def _put_our_python_first() -> None:
    """Let `python` be the one that runs fdl, as the agent does for ranks, unless the user activated another."""
    active = os.environ.get("VIRTUAL_ENV")
    if sys.prefix == sys.base_prefix or (active and os.path.realpath(active) != os.path.realpath(sys.prefix)):
        return
    folder = os.path.dirname(sys.executable)
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if path[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, *path])

"""Deciding how a command of the project runs: what process it becomes, where, and in which environment.

Touches nothing (but asks how many GPUs there are), so that each rule is a line of a test; project_command.py acts.
"""

from __future__ import annotations

import os

from flodl_cli import manifest, project_files, shell_line, sibling
from flodl_cli.command import Command
from flodl_cli.command_line import SWITCHES, CommandLine
from flodl_cli.command_words import words_behind
from flodl_cli.planned_run import Run
from flodl_cli.project_files import Project
from flodl_cli.suggest import did_you_mean
from flodl_wire import environ, exits
from flodl_wire.faults import Fault, Refused, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flodl_wire.config import Cluster
    from flodl_wire.devices import Devices

_RANKS_HINT = "for two ranks on its processor: fdl --gpus cpu:2"


def plan_run(project: Project, command: Command, tokens: list[str], line: CommandLine) -> Run:
    """Decide how `command` runs. Raises Refused."""
    assert command.run is not None
    words = words_behind(command, tokens, append=line.append)
    run = Run(shell_line.argv_of(command.run, words, f"fdl {command.name}"), command.folder)
    run.env = {environ.CONFIG_JSON: None, **command.env}
    if project.env is not None:
        run.env[environ.FDL_ENV] = project.env
    if line.verbosity is not None:
        run.env[environ.VERBOSITY] = line.verbosity
    if line.resume is not None:
        run.env[environ.RESUME] = line.resume
    _note_odd_words(run, project, tokens, command)
    mode = command.mode if line.mode is None else manifest.parse_mode(line.mode, "--mode", exits.USAGE)
    if environ.CLUSTER_JSON in os.environ:
        return run
    if command.cluster:
        from flodl_cli.cluster import validate_net_timeout_scale

        validate_net_timeout_scale(command.env)
    block = project.cluster()
    cluster = None
    if block is not None:
        from flodl_cli import cluster_block

        cluster = cluster_block.parse(block)
    if command.cluster:
        _plan_cluster_command(run, project, command, line, cluster, mode)
    else:
        _plan_single(run, command, line, cluster)
    if environ.FULL_CLUSTER_JSON in run.env:
        return run
    if command.docker is not None:
        from flodl_cli import container

        container.wrap(run, command, project, cluster)
    else:
        _use_active_torch(run, project)
        run.resumes = line.resume is not None and run.argv[0] != "sh"  # a shell line may go elsewhere first
    return run


def _use_active_torch(run: Run, project: Project) -> None:
    """The active libtorch variant, as ranks get it from their agent. Raises Refused when it is not there or is for
    another Python than the one that runs us.
    """
    if not any(os.path.isdir(f"{folder}/libtorch") for folder in (project.root, os.path.expanduser("~/.flodl"))):
        return  # nearly always, and then nothing is imported for it
    from pathlib import Path

    from flodl_wire import libtorch

    variant = libtorch.active(Path(project.root))
    if variant is not None:
        if "VIRTUAL_ENV" not in os.environ:
            variant.check_python()
        set_already = {name: value for name, value in run.env.items() if value is not None}
        run.env.update(libtorch.environment(variant, {**os.environ, **set_already}))


def _plan_single(run: Run, command: Command, line: CommandLine, cluster: Cluster | None) -> None:
    """A command that is one process whatever the overlay says."""
    if line.mode is not None:
        fix = f"mark it `cluster: true` in {command.node.place()}, or leave --mode out"
        raise usage("cannot use --mode", f"{command.name!r} is no cluster command: it runs as one process", fix)
    if cluster is not None:
        from flodl_cli.cluster import prepare_test_cluster_env

        run.env.update(prepare_test_cluster_env(cluster))
        run.notes.append(
            f"{command.name!r} is not marked `cluster: true`: it runs here alone, and no window opens for other hosts"
        )
    if line.gpus is not None:
        _mask_single(run, line.gpus, command)


def _plan_cluster_command(
    run: Run, project: Project, command: Command, line: CommandLine, block: Cluster | None, mode: str | None
) -> None:
    from flodl_cli import gpus
    from flodl_cli.cluster import should_dispatch, single_host, with_local_devices

    devices = gpus.read(line.gpus) if line.gpus is not None else None
    cluster = block
    if cluster is not None and devices is not None:
        cluster = with_local_devices(cluster, devices)
    elif cluster is None:
        devices = _devices_here(run, devices, command, fewest=1 if mode == "torch" else 2)
        if devices is not None:
            cluster = single_host(devices, project.root, command.docker)
    if cluster is not None and should_dispatch(command.cluster, cluster):
        _plan_launch(run, project, command, cluster, mode)
    elif mode is not None:
        run.env[environ.MODE] = mode
        if line.mode is not None:
            run.notes.append(f"one process has nobody to average with: --mode {line.mode} has no effect")


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


def _plan_launch(run: Run, project: Project, command: Command, cluster: Cluster, mode: str | None) -> None:
    from flodl_cli.cluster import prepare_cluster_env
    from flodl_wire.specs import LaunchConfig

    cwd = os.path.relpath(command.folder, project.root)
    publishing = project.config.get("publish")
    to = publishing.get("to") if publishing is not None else None
    config = LaunchConfig(
        cluster=cluster,
        mode=mode,
        manifest=project.manifest,
        served=to.value if to is not None and isinstance(to.value, str) else "",
        any_port=project.config.get("cluster") is None,  # a world of this box alone: two of them may go on at once
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
    from flodl_cli.prebuild import plan_prebuild

    run.prebuild = plan_prebuild(project.root, command, cluster)
    run.config = config
    run.env.update(prepare_cluster_env(cluster, config, command.name, project.env))


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


def _note_odd_words(run: Run, project: Project, tokens: list[str], command: Command) -> None:
    """Words that the command gets and that were perhaps meant for us. They go to it all the same."""
    own = tokens[: tokens.index("--")] if "--" in tokens else tokens
    run.notes += [
        f"{word} stands behind the command and goes to it; for fdl: fdl {word} {command.name}"
        for word in dict.fromkeys(own)
        if word in SWITCHES
    ]
    for token in tokens:
        if token.startswith("@") and token[1:] != project.env and token[1:] in project_files.overlays(project.root):
            run.notes.append(
                f"{token} stands behind the command and goes to it; for the overlay: fdl {token} {command.name}"
            )
    if command.commands and tokens:
        hint = did_you_mean(tokens[0], command.commands)
        if hint:
            run.notes.append(
                f"{tokens[0]!r} goes to {command.name!r} as a word; did you mean `fdl {command.name} {hint}`?"
            )

"""A command with `docker:`: the same words, as a process in a service of the project's compose file."""

from __future__ import annotations

import os
import subprocess
import sys

from flodl_cli import sibling
from flodl_cli.cluster import cluster_compose_overlay_arg, resolve_hosts
from flodl_cli.command import Command
from flodl_cli.project_files import Project
from flodl_wire import compose, exits
from flodl_wire.faults import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flodl_cli.planned_run import Run
    from flodl_wire.config import Cluster


def wrap(run: Run, command: Command, project: Project, cluster: Cluster | None) -> None:
    """Let `run` happen inside the service. What is set for the command goes in by name (`-e NAME`), so that no value is
    seen in `ps`; a command of a sub-folder is entered there, in the project as the service mounts it.

    Raises Refused (exit 127) without a `docker`.
    """
    assert command.docker is not None
    folder = command.folder if _has_compose_file(command.folder) else project.root
    below = os.path.relpath(command.folder, folder)
    inner = run.argv if below == os.curdir else ["sh", "-c", 'cd -- "$0" && exec "$@"', below, *run.argv]
    pairs = resolve_hosts([cluster.controller.host, *(worker.host for worker in cluster.workers)]) if cluster else []
    names = [name for name, value in run.env.items() if value is not None]
    run.argv = compose_argv(run, folder, command.docker, names, pairs, inner, f"run {command.name!r}")
    run.folder = folder


def compose_argv(
    run: Run | None,
    folder: str,
    service: str,
    names: list[str],
    pairs: list[str],
    inner: list[str],
    what: str,
    *,
    tty: bool | None = None,
) -> list[str]:
    """`docker compose … run … <service> <inner>` for the compose file of `folder`, and for `pairs` a second file that
    gives them to the service.
    """
    docker = sibling.find("docker")
    if docker is None:
        why, fix = compose.MISSING
        raise Refused("no-docker", f"cannot {what} in the service {service!r}", why, fix, exit_code=exits.NO_COMMAND)
    files = cluster_compose_overlay_arg(folder, service, pairs)
    named = os.environ.get("COMPOSE_FILE")
    if files and named and run is not None:  # files chosen by hand: ours goes on top of those
        over = os.path.join(folder, compose.overlay_name(service))
        run.env["COMPOSE_FILE"] = named + os.environ.get("COMPOSE_PATH_SEPARATOR", os.pathsep) + over
        files = []
    if tty is None:
        tty = bool(sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty())
    words = compose.run_words(service, names, pairs if pairs and _knows_add_host(docker) else [], tty=tty)
    return [docker, "compose", *files, *words, *inner]


def _knows_add_host(docker: str) -> bool:
    try:
        said = subprocess.run(
            [docker, "compose", "run", "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return compose.takes_add_host(said.stdout.decode(errors="replace"))


def _has_compose_file(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, name)) for name in compose.FILES)

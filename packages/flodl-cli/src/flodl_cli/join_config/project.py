"""What the wizard reads from the project: its name, what it runs, what it serves. Nothing is guessed in silence."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field

from flodl_cli import manifest, project_files
from flodl_cli.command import Command, everyone
from flodl_cli.join_config.farm import DEFAULT_DATA, DEFAULT_PROGRAM, DEFAULT_SERVED
from flodl_cli.node import Node
from flodl_cli.project_files import Project
from flodl_cli.verbs import BUILTINS, VERBS
from flodl_wire.address import DEFAULT_PORT
from flodl_wire.entry_words import split
from flodl_wire.faults import Refused, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True)
class Seen:
    """`name`: of `[project]`, when it can be typed as a command. `windows`: commands of the manifest that are
    `cluster: true` already. `program`: the script that such a command runs, or train.py where there is one; "" when
    nothing says.
    """

    root: str
    name: str = ""
    name_is_command: bool = False  # the manifest has a command of that name: it has a `run:` already
    runs: str = ""  # a line that would run the project, where no command of it does
    windows: list[str] = field(default_factory=list)
    program: str = ""
    served: str = ""
    data: str = DEFAULT_DATA
    run_port: int = DEFAULT_PORT
    host: str = ""  # controller.host, as the overlay has it
    publishes: bool = False  # a publish: block says what and from where


def root_of_project() -> str:
    """The folder of the project around the current one. Raises Refused without one."""
    return _bare().root


def _bare() -> Project:
    start = project_files.start_folder()
    bare = project_files.load(start, None)
    if bare is None:
        raise Refused(
            "no-project",
            "cannot set up a farm here",
            f"there is no fdl.yml in {printable(start)} or above it; a farm belongs to a project",
            "`fdl init` writes one",
        )
    return bare


def look(label: str) -> Seen:
    """The project around the current folder, with the farm's overlay where it has one. Raises Refused without one."""
    bare = _bare()
    project = project_files.load(bare.root, label) if label in project_files.overlays(bare.root) else bare
    assert project is not None
    commands = manifest.commands_of(project)
    opening = [command for command in everyone(commands) if command.cluster and command.run is not None]
    name = _project_name(bare.root)
    if (
        name in VERBS
        or name in BUILTINS
        or name.startswith(("-", "@"))
        or any(not ch.isprintable() or ch.isspace() for ch in name)
    ):
        name = ""
    return Seen(
        root=bare.root,
        name=name,
        name_is_command=name in manifest.commands_of(bare),
        runs=_line(bare.root, name),
        windows=[command.name for command in opening],
        program=_program(opening, bare.root),
        served=_served(project),
        data=_text(project.config, "cluster", "controller", "data_path") or DEFAULT_DATA,
        run_port=_port(project.config),
        host=_text(project.config, "cluster", "controller", "host"),
        publishes=bool(_text(project.config, "publish", "source") and _text(project.config, "publish", "bin")),
    )


def _project_name(root: str) -> str:
    project = _pyproject(root).get("project")
    name = project.get("name") if isinstance(project, dict) else None
    return name if isinstance(name, str) else ""


def _pyproject(root: str) -> dict[str, Any]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(os.path.join(root, "pyproject.toml"), "rb") as file:
            found: dict[str, Any] = tomllib.load(file)
            return found
    except (OSError, ValueError):  # no name is no error: the entry is commented then
        return {}


def _line(root: str, name: str) -> str:
    """How the project is run, from what it says itself: its own script of that name, or train.py."""
    project = _pyproject(root).get("project")
    scripts = project.get("scripts") if isinstance(project, dict) else None
    if name and isinstance(scripts, dict) and name in scripts:
        return name
    return f"python {DEFAULT_PROGRAM}" if os.path.isfile(os.path.join(root, DEFAULT_PROGRAM)) else ""


def _program(opening: list[Command], root: str) -> str:
    """The script of the first command that opens a window and runs one."""
    for command in opening:
        try:
            script = split(shlex.split(command.run or "")).script
        except ValueError:
            continue
        if script and command.folder == root and os.path.isfile(os.path.join(root, script)):
            return script
    return DEFAULT_PROGRAM if os.path.isfile(os.path.join(root, DEFAULT_PROGRAM)) else ""


def _served(project: Project) -> str:
    written = _text(project.config, "publish", "to") or DEFAULT_SERVED
    return os.path.normpath(os.path.join(project.root, os.path.expanduser(written)))


def _port(config: Node) -> int:
    node = _at(config, "cluster", "controller", "port")
    return node.value if node is not None and isinstance(node.value, int) else DEFAULT_PORT


def _text(config: Node, *path: str) -> str:
    node = _at(config, *path)
    return node.value if node is not None and isinstance(node.value, str) else ""


def _at(config: Node, *path: str) -> Node | None:
    node: Node | None = config
    for key in path:
        node = node.get(key) if node is not None else None
    return node

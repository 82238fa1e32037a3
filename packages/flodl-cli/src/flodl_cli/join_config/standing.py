"""What stands of a farm: read back from its own files, so that a re-run keeps credentials, door and controller."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field

from flodl_cli import document, join_block, project_files
from flodl_cli.join_config import farm as farms
from flodl_cli.join_config import key_pair, overlay
from flodl_cli.join_config.farm import Controller
from flodl_cli.join_config.key_line import blob_of
from flodl_cli.join_config.key_pair import Pair
from flodl_cli.join_config.overlay import Written
from flodl_cli.node import Node
from flodl_wire.faults import Refused
from flodl_wire.join_block import parse_join, ssh_target


@dataclass(frozen=True)
class Standing:
    """Nothing of it need be there. `retired` are the blobs of keys that were rotated out."""

    controller: Controller | None = None
    door: str = ""
    token: str = ""  # of worker.yml
    pair: Pair | None = None
    retired: list[str] = field(default_factory=list)
    overlay_path: str = ""
    overlay: Written | None = None
    cloud_init: bool = False
    key_made: float = 0.0  # seconds since the epoch


def read(root: str, label: str) -> Standing:
    """Raises Refused when a file of the farm cannot be read as what it is."""
    folder = farms.folder(root, label)
    controller, door, token = _worker(os.path.join(folder, "worker.yml"))
    key = os.path.join(folder, "keys", "join_key")
    pair = _pair(key)
    path, written = _overlay(root, label)
    return Standing(
        controller,
        door,
        token,
        pair,
        retired=_retired(os.path.join(folder, "keys", "retired.pub")),
        overlay_path=path,
        overlay=written,
        cloud_init=os.path.exists(os.path.join(folder, "cloud-init.yml")),
        key_made=os.stat(key).st_mtime if pair else 0.0,
    )


def labels(root: str) -> list[str]:
    """The farms of the project."""
    try:
        names = os.listdir(farms.folder(root))
    except OSError:
        return []
    return sorted(name for name in names if os.path.isfile(os.path.join(farms.folder(root, name), "worker.yml")))


def _worker(path: str) -> tuple[Controller | None, str, str]:
    """Controller, door and token, as the worker's own loader understands them."""
    if not os.path.exists(path):
        return None, "", ""
    node = document.read(path)
    block = node.get("join")
    fix = "delete it, and name --controller and --door again"
    if block is None:
        raise Refused("bad-farm", f"cannot use {path}", "it has no join: block", fix)
    join_block.parse(block)
    ssh = parse_join(block.plain()).ssh
    found = ssh_target(ssh, "join.ssh") if isinstance(ssh, str) else ssh
    if found is None:
        raise Refused("bad-farm", f"cannot use {path}", "it names no ssh: target", fix)
    controller = Controller(found.user or "", found.target or "", found.port or farms.SSH_PORT)
    door = "b" if block.get("source") else "a" if block.get("data_source") else "nologin"
    return controller, door, str(_plain(block, "token") or "")


def _plain(node: Node, key: str) -> object:
    child = node.get(key)
    return child.value if child is not None else None


def _pair(path: str) -> Pair | None:
    """The pair; a public half that is gone or another's is derived again."""
    try:
        with open(path, encoding="ascii") as file:
            private = file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as err:
        raise Refused("bad-key", f"cannot use the farm's key {path}", str(err), "--regen makes a new one") from None
    if os.stat(path).st_mode & 0o077:
        raise Refused(
            "open-key-file",
            f"cannot use the farm's key {path}",
            "others may read it",
            f"chmod 600 {shlex.quote(path)}; if they may have, rotate it: --regen",
        )
    return Pair(private, key_pair.public_of(path))


def _retired(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return [blob for line in file if (blob := blob_of(line))]
    except OSError:
        return []


def _overlay(root: str, label: str) -> tuple[str, Written | None]:
    if label not in project_files.overlays(root):
        return os.path.join(root, f"fdl.{label}.yml"), None
    path = project_files.overlay_path(root, label)
    own = document.read(path, project_files.shown(path, root))
    project = project_files.load(root, label)
    assert project is not None
    with open(path, encoding="utf-8", newline="") as file:
        return path, overlay.written(file.read(), own, project.config, path)

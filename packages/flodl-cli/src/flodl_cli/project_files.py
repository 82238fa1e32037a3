"""Which files make up a project's config: the manifest, the overlay of an environment, what they inherit from."""

from __future__ import annotations

import os

from flodl_cli.node import Node, merge
from flodl_cli.suggest import did_you_mean
from flodl_wire.faults import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("fdl.yaml", "fdl.yml", "fdl.json")
OVERLAY_ENDINGS = (".yml", ".yaml", ".json")
EXAMPLE_ENDINGS = (".example", ".dist")
INHERIT = "inherit-from"
OF_A_COMMAND = ("run", "entry", "append", "docker", "build")  # at the top of a manifest: it is itself a command

join = os.path.join  # os.path, not pathlib: its import costs as much as half a start


class Project:
    """A merged config. `root` is the folder of its manifest; `layers` are absolute paths, the lowest first."""

    __slots__ = ("config", "env", "layers", "manifest", "root")

    def __init__(self, manifest: str, config: Node, layers: list[str], env: str | None) -> None:
        self.manifest = manifest
        self.root = os.path.dirname(manifest)
        self.config = config
        self.layers = layers
        self.env = env

    def shown(self, path: str) -> str:
        return shown(path, self.root)

    def cluster(self) -> Node | None:
        """The `cluster:` block. (In a manifest that is itself a command `cluster: true` belongs to that command.)"""
        block = self.config.get("cluster")
        return None if block is None or isinstance(block.value, bool) else block


def manifest_in(folder: str) -> str | None:
    """The manifest of `folder` itself."""
    for name in NAMES:
        path = join(folder, name)
        if os.path.isfile(path):
            return path
    return None


def nearest_manifest(start: str, offer: Callable[[str], bool] | None = None) -> str | None:
    """The first fdl.yaml, fdl.yml or fdl.json in `start` or above it.

    A folder with an example only counts when `offer`, given the example's path, has copied it.
    """
    folder = start
    while True:
        path = manifest_in(folder)
        if path is None and offer is not None:
            example = example_in(folder)
            if example is not None and offer(example):
                path = manifest_in(folder)
        if path is not None:
            return path
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def example_in(folder: str) -> str | None:
    """The first fdl.yml.example, fdl.yml.dist or the like in `folder`."""
    for ending in EXAMPLE_ENDINGS:
        for name in NAMES:
            path = join(folder, name + ending)
            if os.path.isfile(path):
                return path
    return None


def way_to_a_manifest(start: str) -> str:
    """What to do where there is no manifest: an example in `start` or above it is to be copied, never used unasked."""
    folder = start
    while True:
        example = example_in(folder)
        if example is not None:
            return f"cp {example} {os.path.splitext(example)[0]}, read it and try again"
        if os.path.dirname(folder) == folder:
            return "`fdl init` writes one"
        folder = os.path.dirname(folder)


def load(start: str, env: str | None, offer: Callable[[str], bool] | None = None) -> Project | None:
    """The project that `start` lies in, with the overlay of `env` merged in; None when there is no manifest at all.

    A manifest that is itself a command of a project further up stands for that project: the cluster and its overlays
    lie there. Raises Refused.
    """
    manifest = nearest_manifest(start, offer)
    if manifest is None:
        if env is not None:
            why = f"there is no fdl.yml in {start} or above it"
            raise Refused("no-project", f"cannot use @{env}", why, way_to_a_manifest(start))
        return None
    files = Files()
    manifest = _owner(manifest, files)
    root = os.path.dirname(manifest)
    paths = _chain(manifest, root, files)
    if env is not None:
        paths += [path for path in _chain(overlay_path(root, env), root, files) if path not in paths]
    return Project(manifest, _merged(paths, root, files), paths, env)


class Files:
    """Documents read so far: a start reads each file once."""

    def __init__(self) -> None:
        self._read: dict[str, Node] = {}

    def read(self, path: str, root: str) -> Node:
        if path not in self._read:
            from flodl_cli import document  # yaml: a third of a start-up budget, paid only where there is a manifest

            self._read[path] = document.read(path, shown(path, root))
        return self._read[path]


def merged_file(path: str, root: str, files: Files) -> Node:
    """The manifest `path` laid over what it inherits from."""
    return _merged(_chain(path, root, files), root, files)


def _merged(paths: list[str], root: str, files: Files) -> Node:
    """The files in `paths` laid over each other, lowest first."""
    config: Node | None = None
    for path in paths:
        node = files.read(path, root)
        assert isinstance(node.value, dict)
        layer = Node({key: child for key, child in node.value.items() if key != INHERIT}, node.file, node.line)
        config = layer if config is None else merge(config, layer)
    return config or Node({}, root)


def _chain(path: str, root: str, files: Files) -> list[str]:
    """`path` and what it inherits from, deepest ancestor first. Raises Refused for a cycle, naming the whole chain."""
    found: list[str] = []
    current: str | None = path
    while current is not None:
        real = os.path.realpath(current)
        if real in found:
            names = " → ".join(shown(step, root) for step in [*found, real])
            raise Refused(
                "inherit-cycle",
                f"cannot use {shown(path, root)}",
                f"inherit-from runs in a circle: {names}",
                "take one of them out",
            )
        found.append(real)
        current = _parent(real, root, files)
    return found[::-1]


def _parent(path: str, root: str, files: Files) -> str | None:
    node = files.read(path, root)
    declared = node.value.get(INHERIT) if isinstance(node.value, dict) else None
    if declared is None:
        return None
    where = f"{declared.place()} {INHERIT}"
    if not isinstance(declared.value, str) or not declared.value.strip():
        raise Refused("bad-config", f"cannot use {where}", "it must name a file", "write a path relative to this file")
    parent = os.path.normpath(join(os.path.dirname(path), os.path.expanduser(declared.value)))
    if not os.path.isfile(parent):
        raise Refused(
            "bad-config", f"cannot use {where}", f"there is no file {parent}", "write a path relative to this file"
        )
    return parent


def overlay_path(root: str, env: str) -> str:
    """The overlay file of `env` beside the manifest. Raises Refused with the names that exist."""
    for ending in OVERLAY_ENDINGS:
        path = join(root, f"fdl.{env}{ending}")
        if os.path.isfile(path):
            return path
    there = overlays(root)
    names = ", ".join("@" + name for name in there) if there else "none"
    example = join(root, f"fdl.{env}.yml.example")
    hint = did_you_mean(env, there)
    fix = (
        f"cp {example} {example[: -len('.example')]} and fill it in"
        if os.path.isfile(example)
        else f"did you mean @{hint}?"
        if hint
        else f"write fdl.{env}.yml beside the manifest"
    )
    raise Refused(
        "no-overlay", f"cannot use @{env}", f"there is no fdl.{env}.yml in {root}; environments there: {names}", fix
    )


def overlays(root: str) -> list[str]:
    """The names of the overlays beside the manifest in `root`."""
    found = set()
    try:
        names = os.listdir(root)
    except OSError:
        return []
    for name in names:
        stem, ending = os.path.splitext(name)
        if ending in OVERLAY_ENDINGS and stem.startswith("fdl.") and len(stem) > 4:
            found.add(stem[4:])
    return sorted(found)


def _owner(manifest: str, files: Files) -> str:
    """The manifest of the project that `manifest` is a command of, else itself."""
    root = os.path.dirname(manifest)
    if all(files.read(manifest, root).get(key) is None for key in OF_A_COMMAND):
        return manifest
    folder = os.path.dirname(root)
    while folder and folder != os.path.dirname(folder):
        above = nearest_manifest(folder)
        if above is None:
            break
        folder = os.path.dirname(above)
        if _has_command_in(files.read(above, folder), root, folder):
            return above
        folder = os.path.dirname(folder)
    return manifest


def _has_command_in(node: Node, wanted: str, folder: str) -> bool:
    commands = node.value.get("commands") if isinstance(node.value, dict) else None
    if commands is None or not isinstance(commands.value, dict):
        return False
    for name, command in commands.value.items():
        path = command.get("path")
        place = path.value if path is not None else name if command.value is None else None
        if isinstance(place, str) and os.path.realpath(join(folder, place)) == os.path.realpath(wanted):
            return True
        if _has_command_in(command, wanted, folder):
            return True
    return False


def shown(path: str, root: str) -> str:
    """`path` as a user of the project in `root` would name it: relative when it lies inside, else whole."""
    inside = os.path.realpath(root) + os.sep
    real = os.path.realpath(path)
    return real[len(inside) :] if real.startswith(inside) else path


def start_folder() -> str:
    """The folder the user stands in. Raises Refused when it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        raise Refused(
            "no-folder", "cannot look for fdl.yml", "the current folder no longer exists", "cd somewhere else"
        ) from None


def chosen_env(selected: str | None) -> str | None:
    """The environment: what the command line says, else FDL_ENV (empty = unset)."""
    return selected if selected is not None else os.environ.get("FDL_ENV") or None

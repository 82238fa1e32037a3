"""The commands of a manifest, checked: every key known, every value of its type, nothing left to guess."""

from __future__ import annotations

import os

from flodl_cli.node import Node
from flodl_cli.project_files import INHERIT, Files, Project, manifest_in, merged_file
from flodl_cli.suggest import did_you_mean
from flodl_cli.verbs import BUILTINS, VERBS
from flodl_wire import environ, exits
from flodl_wire.faults import Refused

MANIFEST_KEYS = ("description", "commands", "cluster", "join", "publish", "run", INHERIT)
COMMAND_KEYS = ("description", "run", "path", "cluster", "mode", "env", "commands")

_RUN_EXAMPLE = "write a command line, e.g. `run: python train.py`"


class Command:
    """One entry of `commands:`. `cluster`, `mode` and `env` come down from the entries around it; the inner wins."""

    __slots__ = ("cluster", "commands", "description", "env", "folder", "mode", "name", "node", "run")

    def __init__(self, name: str, node: Node, folder: str) -> None:
        self.name = name  # as typed after `fdl`, e.g. "bench quick"
        self.node = node
        self.folder = folder  # absolute; the command runs there
        self.description = ""
        self.run: str | None = None
        self.cluster = False
        self.mode: str | None = None
        self.env: dict[str, str] = {}
        self.commands: dict[str, Command] = {}


def commands_of(project: Project) -> dict[str, Command]:
    """Every command of the project by its first word. Raises Refused at the first thing wrong in the manifest."""
    check_manifest(project.config)
    top = Command("", project.config, project.root)
    return _children(project.config, top, Files(), "commands", project.root)


def check_manifest(config: Node) -> None:
    check_keys(config, MANIFEST_KEYS, "")
    text(config, "description", "")


def find(commands: dict[str, Command], words: list[str]) -> tuple[Command | None, list[str]]:
    """The command that `words` begin with, as deep as names go, and the words left over for it."""
    found: Command | None = None
    rest = words
    while rest and rest[0] in commands:
        found, rest = commands[rest[0]], rest[1:]
        commands = found.commands
    return found, rest


def names(commands: dict[str, Command]) -> list[str]:
    """Full names of every command, nested ones included."""
    found: list[str] = []
    for command in commands.values():
        found += [command.name, *names(command.commands)]
    return found


def _children(node: Node, parent: Command, files: Files, where: str, root: str) -> dict[str, Command]:
    block = node.value.get("commands") if isinstance(node.value, dict) else None
    if block is None or block.value is None:
        return {}
    if not isinstance(block.value, dict):
        fix = "write e.g. `train:` with `run: python train.py` below it"
        raise wrong(block, where, "it must be a block of named commands", fix)
    found = {}
    for name, child in block.value.items():
        _check_name(child, f"{where}.{name}", name, at_top=not parent.name)
        found[name] = _command(child, name, f"{where}.{name}", parent, files, root)
    return found


def _check_name(node: Node, where: str, name: str, *, at_top: bool) -> None:
    if not name or name.startswith(("-", "@")) or any(ch.isspace() or not ch.isprintable() for ch in name):
        raise wrong(
            node,
            where,
            f"{name!r} cannot be typed as a command",
            "use a word without spaces that starts with neither - nor @",
        )
    if at_top and (name in VERBS or name in BUILTINS):
        raise wrong(node, where, f"`fdl {name}` is fdl's own", "give the command another name")


def _command(node: Node, name: str, where: str, parent: Command, files: Files, root: str) -> Command:
    command = Command(f"{parent.name} {name}".strip(), node, parent.folder)
    command.cluster, command.mode, command.env = parent.cluster, parent.mode, dict(parent.env)
    if node.value is None:  # `bench:` alone stands for `path: bench`
        node = Node({"path": Node(name, node.file, node.line)}, node.file, node.line)
    if not isinstance(node.value, dict):
        raise wrong(
            node,
            where,
            "it must be a block of keys",
            f"write `run: {node.value}` below it" if isinstance(node.value, str) else "",
        )
    check_keys(node, COMMAND_KEYS, where)
    command.description = text(node, "description", where) or ""
    command.run = text(node, "run", where)
    if command.run is not None and not command.run.strip():
        raise wrong(node.value["run"], f"{where}.run", "it is blank", _RUN_EXAMPLE)
    place = text(node, "path", where)
    cluster = node.get("cluster")
    if cluster is not None:
        if not isinstance(cluster.value, bool):
            raise wrong(cluster, f"{where}.cluster", f"it is {kind(cluster)}", "write true or false")
        command.cluster = cluster.value
    mode = text(node, "mode", where)
    if mode is not None:
        command.mode = parse_mode(mode, f"{node.value['mode'].place()} {where}.mode")
    command.env.update(_env(node.get("env"), f"{where}.env"))
    if place is not None:
        _enter(command, place, where, files, root)
    command.commands.update(_children(node, command, files, f"{where}.commands", root))
    if command.run is None and not command.commands:
        why = "it says neither what to run nor what commands it holds"
        raise wrong(node, where, why, "add `run: python train.py`, `path:` or `commands:`")
    return command


def _enter(command: Command, place: str, where: str, files: Files, root: str) -> None:
    """Take over the manifest in the folder of `path:`: its `run:` is this command, its commands are below it."""
    node = command.node.get("path") or command.node
    if command.run is not None:
        raise wrong(
            node,
            where,
            "it has both `run` and `path`",
            "keep one: `path` takes the command from the manifest in that folder",
        )
    folder = os.path.normpath(os.path.join(command.folder, os.path.expanduser(place)))
    if not os.path.isdir(folder):
        raise wrong(node, f"{where}.path", f"there is no folder {folder}", "write a path relative to the manifest")
    if len(command.name.split()) > 8:
        raise wrong(node, f"{where}.path", "the manifests name each other in a circle", "take one `path:` out")
    path = manifest_in(folder)
    if path is None:
        fix = "write one there, with `run:` or `commands:`"
        raise wrong(node, f"{where}.path", f"there is no fdl.yml in {folder}", fix)
    child = merged_file(path, root, files)  # a cluster block of its own does not count: the project's does
    check_keys(child, MANIFEST_KEYS, "")
    command.folder = folder
    command.run = text(child, "run", "")
    if command.run is not None and not command.run.strip():
        raise wrong(child, "run", "it is blank", _RUN_EXAMPLE)
    command.description = command.description or text(child, "description", "") or ""
    command.commands = _children(child, command, files, "commands", root)


def _env(node: Node | None, where: str) -> dict[str, str]:
    if node is None:
        return {}
    if not isinstance(node.value, dict):
        raise wrong(node, where, f"it is {kind(node)}", "write it as a block of NAME: value")
    found: dict[str, str] = {}
    for name, child in node.value.items():
        if not environ.is_valid_name(name):
            raise wrong(
                child,
                f"{where}.{name}",
                "it is no name of an environment variable",
                "letters, digits and _ only, no digit first",
            )
        if environ.is_reserved(name):
            raise wrong(
                child,
                f"{where}.{name}",
                "flodl sets it for each rank itself",
                "delete the key; --gpus and local_devices choose devices",
            )
        if not isinstance(child.value, str):
            raise wrong(
                child, f"{where}.{name}", f"its value is {kind(child)}, and an environment holds text", quoting(child)
            )
        if "\0" in child.value:
            raise wrong(
                child, f"{where}.{name}", "its value holds a NUL byte, which no environment can carry", "take it out"
            )
        found[name] = child.value
    return found


def parse_mode(word: str, where: str, exit_code: int = exits.NOT_DONE) -> str:
    """The mode that `word` names (dashes and underscores are the same). Raises Refused with `exit_code`."""
    from flodl_wire.config import MODES

    mode = word.replace("-", "_")
    if mode not in MODES:
        hint = did_you_mean(word, MODES)
        raise Refused(
            "bad-mode",
            f"cannot use {where}: {word!r}",
            "there is no such mode" + (f"; did you mean {hint}?" if hint else ""),
            "one of " + ", ".join(MODES),
            exit_code=exit_code,
        )
    return mode


# --- the words in which a wrong value is refused


def text(node: Node, key: str, where: str) -> str | None:
    """The text under `key`, None when it is not there."""
    child = node.get(key)
    if child is None or isinstance(child.value, str):
        return child.value if child is not None else None  # type: ignore[return-value]
    raise wrong(child, f"{where}.{key}".removeprefix("."), f"it is {kind(child)} where text belongs", quoting(child))


def check_keys(node: Node, known: tuple[str, ...], where: str) -> None:
    """Refuse the first key of the mapping `node` that is not `known`, with the key that was probably meant."""
    assert isinstance(node.value, dict)
    for key, child in node.value.items():
        if key not in known:
            hint = did_you_mean(key, known)
            there = "keys here: " + ", ".join(known)
            raise wrong(
                child,
                f"{where}.{key}".removeprefix("."),
                "there is no such key",
                f"did you mean {hint}? {there}" if hint else there,
            )


def wrong(node: Node, where: str, why: str, fix: str = "") -> Refused:
    return Refused("bad-config", f"cannot use {node.place()} {where}".rstrip(), why, fix)


def kind(node: Node) -> str:
    """What a value is, in the words of somebody who writes YAML."""
    value = node.value
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, dict):
        return "a block of keys"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else f"the text {value!r}"


def quoting(node: Node) -> str:
    """The fix for a scalar that YAML did not read as text."""
    value = node.value
    if isinstance(value, bool):
        return "quote what you wrote: YAML reads yes, no, on and off as truth values"
    return f'quote it: "{value}"' if isinstance(value, (int, float)) else ""

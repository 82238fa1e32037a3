"""The commands of a manifest, checked: every key known, every value of its type, nothing left to guess.

A command is one of three kinds. `run:` is a command line. `path:` is the manifest in another folder, read when somebody
asks for it. An entry that says neither is a preset: it runs the `entry:` around it with options of its own.
"""

from __future__ import annotations

import os
import shlex

from flodl_cli.command import Command, find, names
from flodl_cli.node import Node
from flodl_cli.project_files import INHERIT, Files, Project, manifest_in, merged_file
from flodl_cli.suggest import did_you_mean
from flodl_cli.values import check_keys, kind, quoting, text, truth, variables, wrong
from flodl_cli.verbs import BUILTINS, VERBS
from flodl_wire import exits
from flodl_wire.faults import Refused

__all__ = ["COMMAND_KEYS", "MANIFEST_KEYS", "Command", "check_manifest", "commands_of", "find", "names", "parse_mode"]

OF_A_RUN = ("options", "append", "docker", "build")  # they say how something is run, so they need something to run
COMMAND_KEYS = ("description", "run", "path", "entry", *OF_A_RUN, "cluster", "mode", "env", "commands")
MANIFEST_KEYS = (
    "description", "commands", "cluster", "join", "publish", "run", "entry", *OF_A_RUN, "mode", "env", INHERIT,
)  # fmt: skip

_RUN_EXAMPLE = "write a command line, e.g. `run: python train.py`"


class Source:
    """What the commands of one project are read from."""

    __slots__ = ("files", "root")

    def __init__(self, root: str) -> None:
        self.root = root
        self.files = Files()


def commands_of(project: Project) -> dict[str, Command]:
    """Every command of the project by its first word. Raises Refused at the first thing wrong in the manifest; what is
    wrong in the manifest of a `path:` is said by the command itself when it is opened.
    """
    check_manifest(project.config)
    top = Command("", project.config, project.root)
    top.way = (os.path.realpath(project.root),)
    _settle(top, project.config, "", Source(project.root))
    return top.commands


def check_manifest(config: Node) -> None:
    check_keys(config, MANIFEST_KEYS, "")
    text(config, "description", "")


def _settle(command: Command, node: Node, where: str, source: Source) -> None:
    """Fill `command` from the keys of `node`: an entry of `commands:`, or the top of a manifest (where `cluster:` may
    be a block, which is the project's affair)."""

    def key(name: str) -> str:
        return f"{where}.{name}".removeprefix(".")

    command.description = text(node, "description", where) or command.description
    cluster = node.get("cluster")
    if cluster is not None and not (where == "" and isinstance(cluster.value, dict)):
        command.cluster = bool(truth(node, "cluster", where))
    mode = text(node, "mode", where)
    if mode is not None:
        assert isinstance(node.value, dict)
        command.mode = parse_mode(mode, f"{node.value['mode'].place()} {key('mode')}")
    command.env.update(variables(node.get("env"), key("env")))
    for name in ("run", "entry"):
        line = text(node, name, where)
        if line is None:
            continue
        if not line.strip():
            raise wrong(node.get(name) or node, key(name), "it is blank", _RUN_EXAMPLE)
        if command.run is not None and name == "entry" and node.get("run") is not None:
            raise wrong(node.get(name) or node, where, "it has both `run` and `entry`", "keep one of the two")
        command.run, command.entry = line, name == "entry"
        command.options, command.append, command.docker, command.build = {}, [], None, None
    _settle_run(command, node, where)
    command.commands.update(_children(node, command, key("commands"), source))


def _settle_run(command: Command, node: Node, where: str) -> None:
    """How the command line is run: its options, what stands behind it, in which container, built how."""
    for name in OF_A_RUN:
        child = node.get(name)
        place = f"{where}.{name}".removeprefix(".")
        if child is None:
            continue
        if command.run is None:
            raise wrong(child, place, "there is nothing to run beside it", "write it beside `run:` or `entry:`")
        if name == "options":
            if not command.entry:
                why = "a `run:` line says its options itself"
                raise wrong(child, place, why, "put them into the line, or write `entry:` instead of `run:`")
            command.options.update(_options(child, place))
        elif name == "append":
            command.append = _appended(child, place)
        else:
            said = text(node, name, where) or ""
            if not said.strip() or (name == "docker" and (said.split() != [said] or said.startswith("-"))):
                fix = "name a service of compose.yaml" if name == "docker" else "write a command line"
                raise wrong(child, place, "it is blank" if not said.strip() else "it is no name of a service", fix)
            setattr(command, name, said)


def _options(node: Node, where: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise wrong(node, where, f"it is {kind(node)}", "write it as a block of NAME: value")
    for name, child in node.value.items():
        items = child.value if isinstance(child.value, list) else [child]
        if not name or any(ch.isspace() or ch == "=" for ch in name):
            raise wrong(child, f"{where}.{name}", "it is no name of an option", "write it as `epochs: 3`")
        if any(isinstance(item.value, (dict, list)) for item in items):
            fix = "one value, or a list of single values, which is joined by commas"
            raise wrong(child, f"{where}.{name}", f"it is {kind(child)}", fix)
    return dict(node.value)


def _appended(node: Node, where: str) -> list[str]:
    """The words of `append:`, from a line (split as a shell would, nothing expanded) or a list (each as it is)."""
    if isinstance(node.value, str):
        try:
            return shlex.split(node.value)
        except ValueError as err:
            raise wrong(node, where, f"it cannot be split into words: {err}", "close the quote") from None
    if not isinstance(node.value, list):
        raise wrong(
            node,
            where,
            f"it is {kind(node)} where words belong",
            quoting(node) if not isinstance(node.value, dict) else "write a line or a list",
        )
    words = []
    for index, item in enumerate(node.value):
        if not isinstance(item.value, str):
            raise wrong(item, f"{where}[{index}]", f"it is {kind(item)} where text belongs", quoting(item))
        words.append(item.value)
    return words


def _children(node: Node, parent: Command, where: str, source: Source) -> dict[str, Command]:
    block = node.value.get("commands") if isinstance(node.value, dict) else None
    if block is None or block.value is None:
        return {}
    if not isinstance(block.value, dict):
        fix = "write e.g. `train:` with `run: python train.py` below it"
        raise wrong(block, where, "it must be a block of named commands", fix)
    found = {}
    for name, child in block.value.items():
        _check_name(child, f"{where}.{name}", name, at_top=not parent.name)
        found[name] = _command(child, name, f"{where}.{name}", parent, source)
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


def _command(node: Node, name: str, where: str, parent: Command, source: Source) -> Command:
    command = Command(f"{parent.name} {name}".strip(), node, parent.folder)
    command.cluster, command.mode, command.env, command.way = parent.cluster, parent.mode, dict(parent.env), parent.way
    if node.value is None:  # `bench:` alone stands for `path: bench`
        node = Node({"path": Node(name, node.file, node.line)}, node.file, node.line)
    if not isinstance(node.value, dict):
        line = node.value if isinstance(node.value, str) else None
        raise wrong(node, where, "it must be a block of keys", f"write `run: {line or 'python train.py'}` below it")
    check_keys(node, COMMAND_KEYS, where)
    place = text(node, "path", where)
    own = [key for key in ("run", "entry", "path") if node.get(key) is not None]
    if len(own) > 1:
        fix = "keep one: `path` takes the command from the manifest in that folder"
        raise wrong(node, where, f"it has both `{own[0]}` and `{own[1]}`", fix if "path" in own else "keep one of them")
    preset = parent.entry and not own and node.get("commands") is None
    if preset:
        command.run, command.entry, command.docker, command.build = parent.run, True, parent.docker, parent.build
        command.options, command.append = dict(parent.options), list(parent.append)
    _settle(command, node, where, source)
    if place is not None:
        below = command.commands
        command.commands = {}
        command.enter = lambda: _enter(command, place, where, below, source)
    elif command.run is None and not command.commands:
        why = "it says neither what to run nor what commands it holds"
        fix = "add `run: python train.py`, `path:` or `commands:` (a preset needs an `entry:` around it)"
        raise wrong(node, where, why, fix)
    return command


def _enter(command: Command, place: str, where: str, below: dict[str, Command], source: Source) -> None:
    """Take over the manifest in the folder of `path:`: what it runs is this command, its commands are below it."""
    node = command.node.get("path") or command.node
    folder = os.path.normpath(os.path.join(command.folder, os.path.expanduser(place)))
    if not os.path.isdir(folder):
        raise wrong(node, f"{where}.path", f"there is no folder {folder}", "write a path relative to the manifest")
    real = os.path.realpath(folder)
    if real in command.way:
        steps = [os.path.relpath(step, command.way[0]) for step in (*command.way[command.way.index(real) :], real)]
        why = f"the manifests name each other in a circle: {' → '.join(steps)}"
        raise wrong(node, f"{where}.path", why, "take one `path:` out")
    path = manifest_in(folder)
    if path is None:
        fix = "write one there, with `run:`, `entry:` or `commands:`"
        raise wrong(node, f"{where}.path", f"there is no fdl.yml in {folder}", fix)
    child = merged_file(path, source.root, source.files)  # a cluster block of its own does not count: the project's
    check_keys(child, MANIFEST_KEYS, "")
    description, command.folder, command.way = command.description, folder, (*command.way, real)
    _settle(command, child, "", source)
    command.description = description or command.description
    command.commands.update(below)
    if command.run is None and not command.commands:
        raise wrong(child, "", "it says neither what to run nor what commands it holds", "add `run:` or `commands:`")


def parse_mode(word: str, where: str, exit_code: int = exits.NOT_DONE) -> str:
    """The mode that `word` names (dashes and underscores are the same). Raises Refused with `exit_code`."""
    from flodl_wire.modes import MODES

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

"""Reading one value of a config, and the words in which a wrong one is refused."""

from __future__ import annotations

from flodl_cli.node import Node
from flodl_cli.suggest import did_you_mean
from flodl_wire import environ
from flodl_wire.faults import Refused


def text(node: Node, key: str, where: str) -> str | None:
    """The text under `key`, None when it is not there."""
    child = node.get(key)
    if child is None or isinstance(child.value, str):
        return child.value if child is not None else None  # type: ignore[return-value]
    raise wrong(child, f"{where}.{key}".removeprefix("."), f"it is {kind(child)} where text belongs", quoting(child))


# What people write who have used another tool, or the format of an older one.
_SYNONYMS = {
    "cmd": "run",
    "command": "run",
    "script": "run",
    "exec": "run",
    "args": "append",
    "compile": "build",
    "prebuild": "build",
    "environment": "env",
    "training": "options",
    "ddp": "options",
    "output": "options",
    "service": "docker",
    "dir": "path",
    "folder": "path",
    "extends": "inherit-from",
    "include": "inherit-from",
}


def check_keys(node: Node, known: tuple[str, ...], where: str) -> None:
    """Refuse the first key of the mapping `node` that is not `known`, with the key that was probably meant."""
    assert isinstance(node.value, dict)
    for key, child in node.value.items():
        if key not in known:
            other = _SYNONYMS.get(key.lower())
            hint = other if other in known else did_you_mean(key, known)
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
    if value is None:
        return 'write "" for an empty text, or delete the key'
    return f'quote it: "{value}"' if isinstance(value, (int, float)) else "write a word or a quoted text"


def truth(node: Node, key: str, where: str) -> bool | None:
    """The truth value under `key`, None when it is not there."""
    child = node.get(key)
    if child is None or isinstance(child.value, bool):
        return child.value if child is not None else None  # type: ignore[return-value]
    raise wrong(child, f"{where}.{key}".removeprefix("."), f"it is {kind(child)}", "write true or false")


def variables(node: Node | None, where: str) -> dict[str, str]:
    """A block of environment variables."""
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

"""What is wrong with a ``cluster:`` block, in the words of somebody who writes YAML: msgspec finds the place, this
says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from flodl_wire.faults import Refused

_STEP = re.compile(r"\.([^.\[`]+)|\[(\d+|\.\.\.)\]")

_SPOKEN = {
    "object": "a block of keys",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}

# Required keys, and what to put there.
_PURPOSE = {
    "controller": "the box you type on: controller: {host: <address the workers dial>, path: <project folder>}",
    "controller.host": "the address the workers dial",
    "controller.path": "the folder of the project on the controller",
    "workers[].host": "the name of the host, as ssh knows it",
    "workers[].local_devices": "all, a list such as [0, 1], or cpu:2",
    "workers[].path": "the folder of the project on that host",
}

# Keys of an older format and where their meaning lives now, wherever they stand; and those of the block itself.
MOVED = {
    "master_addr": "controller.host",
    "master_port": "controller.port",
    "ssh_host": "ssh.target",
    "ssh_target": "ssh.target",
    "ssh_port": "ssh.port",
    "ssh_user": "ssh.user",
    "ssh_identity_file": "ssh.identity_file",
    "ssh_options": "ssh.options",
}
MOVED_LISTS = {"hosts": "workers", "nodes": "workers"}


def refusal(message: str, data: Any, source: str, keys_of: dict[str, Iterable[str]]) -> Refused:
    """The fault for msgspec's `message` about `data`, which stood under `source`; `keys_of` lists each block's keys."""
    text, _, path = message.partition(" - at ")
    steps: list[str | int] = []
    value = data
    for name, index in _STEP.findall(path.strip("`").removeprefix("$")):
        if name:
            step: str | int = name
        elif index == "...":  # some value of a map: the first that is no text
            step = next((key for key in value if not isinstance(key, str) or not isinstance(value[key], str)), "…")
        else:
            step = int(index)
        steps.append(step)
        value = _at(value, step)
    where = _render(source, steps)
    block = _render("", ["[]" if isinstance(step, int) else step for step in steps])
    field = text.partition("`")[2].rpartition("`")[0]
    if text.startswith("Object contains unknown field"):
        return _unknown(f"{where}.{field}", field, sorted(keys_of.get(block, ())))
    if text.startswith("Object missing required field"):
        purpose = _PURPOSE.get(f"{block}.{field}".lstrip("."), "")
        return Refused("bad-config", f"cannot use {where}", f"it lacks the key {field}", f"add {field}: {purpose}")
    if text.startswith("Invalid enum value"):
        return Refused("bad-config", f"cannot use {where}", f"it is {value!r}", _choices(block))
    secret = bool(steps) and steps[-1] == "token"
    shown = "" if secret else f", and it is {_shown(value)}"
    kinds = field.partition("`")[0].split(" | ")
    why = text[:1].lower() + text[1:]
    if text.startswith("Expected"):
        why = f"it must be {_wanted(kinds)}{shown}"
    form = f"write {_PURPOSE[block]}" if block.endswith("local_devices") else _FORMS.get(kinds[0], "")
    fix = _quoting(steps, value, secret) if kinds[0] == "str" else form
    return Refused("bad-config", f"cannot use {where}", why, fix)


def _at(value: Any, step: str | int) -> Any:
    try:
        return value[step]
    except (KeyError, IndexError, TypeError):
        return None


def _render(source: str, steps: Iterable[str | int]) -> str:
    text = source
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else "[]" if step == "[]" else f".{step}" if text else step
    return text


def _unknown(where: str, field: str, known: list[str]) -> Refused:
    moved = MOVED.get(field) or MOVED_LISTS.get(field)
    if moved:
        return Refused("bad-config", f"cannot use {where}", "it is the key of an older format", f"write it as {moved}")
    import difflib

    close = difflib.get_close_matches(field, known, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    return Refused(
        "bad-config", f"cannot use {where}", "there is no such key", f"{hint}the keys here are {', '.join(known)}"
    )


def _choices(block: str) -> str:
    return "use auto, manual or hybrid" if block == "controller.join.start" else ""


def _wanted(kinds: list[str]) -> str:
    """The types msgspec expected, spoken."""
    return " or ".join(_SPOKEN.get(kind, kind) for kind in kinds if kind != "null")


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a block of keys"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# How to write what was expected, when the key alone does not say it.
_FORMS = {
    "object": "write its keys below it, indented, as name: value",
    "array": "write a list: [a, b], or one item a line after a dash",
    "int": "write a whole number, without quotes",
    "float": "write a number, without quotes",
    "bool": "write true or false, without quotes",
}


def _quoting(steps: list[str | int], value: Any, secret: bool) -> str:
    """YAML makes numbers and truth values of unquoted words; say how to keep them text."""
    if secret:
        return "put it in quotes"
    if isinstance(value, bool):
        return f'put it in quotes: "{str(value).lower()}"'
    if isinstance(value, int | float):
        return f'put it in quotes: "{value}"'
    if value is None and steps:
        return 'write "" for an empty value, or delete the key'
    return "write a word or a quoted text"

"""One value of a config together with the place where it was written, and how two configs merge."""

from __future__ import annotations

from collections.abc import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Value: TypeAlias = "dict[str, Node] | list[Node] | str | int | float | bool | None"


class Node:
    """A mapping of nodes, a list of nodes, or a scalar. `line` counts from 1; 0 where the format keeps none (JSON)."""

    __slots__ = ("file", "line", "value")

    def __init__(self, value: Value, file: str, line: int = 0) -> None:
        self.value = value
        self.file = file
        self.line = line

    def place(self) -> str:
        """`file:line`, as editors and compilers spell it."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def plain(self) -> Any:
        """The value without its places: dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def get(self, key: str) -> Node | None:
        """The child `key` of a mapping; None when it is not there, is null, or this is no mapping."""
        child = self.value.get(key) if isinstance(self.value, dict) else None
        return None if child is None or child.value is None else child


def flaw_of_text(text: str) -> str:
    """Why `text` can stand in no config: nothing made of it could be handed to a process. "" for any other."""
    if "\0" in text:
        return "it holds a NUL byte, which neither a command line nor an environment can carry"
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        return "it holds half of a surrogate pair, which is no text"
    return ""


def merge(lower: Node, upper: Node) -> Node:
    """`upper` laid over `lower`: mappings recurse, scalars and lists replace, null deletes, a change of type replaces.

    Neither argument is changed.
    """
    if not (isinstance(lower.value, dict) and isinstance(upper.value, dict)):
        return _without_nulls(upper)
    merged = dict(lower.value)
    for key, child in upper.value.items():
        if child.value is None:
            merged.pop(key, None)
        elif key in merged:
            merged[key] = merge(merged[key], child)
        else:
            merged[key] = _without_nulls(child)
    return Node(merged, upper.file, upper.line)


def _without_nulls(node: Node) -> Node:
    """A null in a layer above the first deletes; where there was nothing it leaves nothing."""
    if not isinstance(node.value, dict):
        return node
    kept = {key: _without_nulls(child) for key, child in node.value.items() if child.value is not None}
    return Node(kept, node.file, node.line)


def leaves(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Every scalar, list of scalars and empty block below `node` with its path, in the order written. Of a list that
    holds more than scalars every entry has a step of its own, `[0]`.
    """
    if isinstance(node.value, dict) and node.value:
        for key, child in node.value.items():
            yield from leaves(child, (*path, key))
    elif isinstance(node.value, list) and any(isinstance(item.value, (dict, list)) for item in node.value):
        for index, item in enumerate(node.value):
            yield from leaves(item, (*path, f"[{index}]"))
    elif path:
        yield path, node


def dotted(path: tuple[str, ...]) -> str:
    """The path as messages spell it: `cluster.workers[0].host`."""
    return "".join(step if step.startswith("[") else "." + step for step in path).removeprefix(".")

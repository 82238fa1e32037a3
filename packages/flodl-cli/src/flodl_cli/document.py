"""Reading one YAML or JSON file into nodes, so strictly that what was meant is what is read.

Duplicate keys are refused (YAML would take the last in silence), keys are text whatever YAML 1.1 makes of them (`on`,
`no`), and every error names file and line and shows the lines around it. `fdl` alone reads the project's YAML.
"""

from __future__ import annotations

import json
import math

import yaml

from flodl_cli.json_tree import read_json
from flodl_cli.node import Node, flaw_of_text
from flodl_wire.faults import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_BYTES = 1 << 20  # a manifest is written by hand; whatever is larger is another file
MAX_NODES = 100_000  # aliases of aliases grow without bound ("billion laughs")

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAP = "tag:yaml.org,2002:map"
_SEQ = "tag:yaml.org,2002:seq"
_MERGE = "tag:yaml.org,2002:merge"


def read(path: str, shown: str | None = None) -> Node:
    """The document in the file `path`; an empty one is an empty mapping. `shown` is the name used in messages.

    Raises Refused when it cannot be read or parsed, or when its top level is no mapping.
    """
    shown = shown or path
    text = _text(path, shown)
    node = _read_json(text, shown) if path.endswith(".json") else _read_yaml(text, shown)
    if node.value is None:
        return Node({}, shown, 1)
    if not isinstance(node.value, dict):
        raise _refused(shown, text, node.line, "its top level must be keys with values", "write e.g. `commands:`")
    return node


def _text(path: str, shown: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as err:
        raise Refused(
            "unreadable", f"cannot read {shown}", err.strerror or str(err), "make it a readable file"
        ) from None
    if len(data) > MAX_BYTES:
        raise Refused(
            "unreadable", f"cannot read {shown}", f"it is larger than {MAX_BYTES >> 20} MiB", "is this another file?"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        why = f"line {line} is not UTF-8 (byte 0x{data[err.start]:02x})"
        raise Refused("unreadable", f"cannot read {shown}", why, "save the file as UTF-8") from None


# --- YAML


def _read_yaml(text: str, shown: str) -> Node:
    loader: Any = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        return Node(None, shown) if root is None else _YamlTree(loader, text, shown).build(root, ())
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        why = ", ".join(part for part in (err.context, err.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        fix = (
            "indent with spaces: YAML allows no tabs there"
            if "\t" in "".join(text.splitlines()[line - 1 : line])[:column]
            else ""
        )
        raise _refused(shown, text, line, why, fix, column) from None
    except yaml.reader.ReaderError as err:
        line = text.count("\n", 0, err.position) + 1
        raise _refused(
            shown, text, line, f"it holds the character {err.character!r}, which YAML does not allow"
        ) from None
    except RecursionError:
        raise Refused(
            "bad-config", f"cannot read {shown}", "it is nested too deeply", "a config needs ten levels at most"
        ) from None
    finally:
        if loader is not None:
            loader.dispose()


class _YamlTree:
    """Turns composed YAML nodes into ours; keeps count, so that a small file cannot unfold into a large one."""

    def __init__(self, loader: Any, text: str, shown: str) -> None:
        self.loader = loader
        self.text = text
        self.shown = shown
        self.nodes = 0

    def build(self, source: Any, path: tuple[str, ...], open_ids: tuple[int, ...] = (), line: int = 0) -> Node:
        line = line or source.start_mark.line + 1
        self.nodes += 1
        if self.nodes > MAX_NODES or id(source) in open_ids:
            raise self._refused(line, "its aliases unfold without end")
        if isinstance(source, yaml.ScalarNode):
            return Node(self._scalar(source, path, line), self.shown, line)
        open_ids = (*open_ids, id(source))
        if source.tag not in (_MAP, _SEQ):
            raise self._refused(line, f"{_named(path)} has the tag {source.tag!r}, and a config is plain data")
        if isinstance(source, yaml.SequenceNode):
            items = [self.build(item, (*path, str(index)), open_ids) for index, item in enumerate(source.value)]
            return Node(items, self.shown, line)
        return Node(self._mapping(source, path, open_ids), self.shown, line)

    def _mapping(self, source: Any, path: tuple[str, ...], open_ids: tuple[int, ...]) -> dict[str, Node]:
        mapping: dict[str, Node] = {}
        inherited: list[Any] = []
        for key, value in source.value:
            line = key.start_mark.line + 1
            if key.tag == _MERGE:
                inherited += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise self._refused(line, "a key must be text")
            name = str(key.value)
            if flaw := flaw_of_text(name):
                raise self._refused(line, f"{_named(path)}: {flaw}", "take it out")
            if name in mapping:
                raise self._refused(
                    line,
                    f"{_named((*path, name))} stands twice: lines {mapping[name].line} and {line}",
                    "keep one of the two",
                )
            mapping[name] = self.build(value, (*path, name), open_ids, line)
        for block in inherited:
            if not isinstance(block, yaml.MappingNode):
                raise self._refused(block.start_mark.line + 1, "`<<` merges blocks of keys only")
            if id(block) in open_ids:
                raise self._refused(block.start_mark.line + 1, "its aliases unfold without end")
            for name, child in self._mapping(block, path, (*open_ids, id(block))).items():
                mapping.setdefault(name, child)
        return mapping

    def _scalar(self, source: Any, path: tuple[str, ...], line: int) -> str | int | float | bool | None:
        try:
            value = self.loader.construct_object(source)
        except ValueError as err:  # e.g. a number of 5,000 digits, an impossible date
            raise self._refused(
                line, f"{_named(path)} cannot be read: {err}", "quote it if it is meant as text"
            ) from None
        if isinstance(value, str) and (flaw := flaw_of_text(value)):
            raise self._refused(line, f"{_named(path)}: {flaw}", "take it out")
        if isinstance(value, float) and not math.isfinite(value):
            raise self._refused(line, f"{_named(path)} is {source.value}, which is no number a tool can use")
        if isinstance(value, (bytes, set)) or (value is not None and not source.tag.startswith("tag:yaml.org,2002:")):
            raise self._refused(line, f"{_named(path)} has the tag {source.tag!r}, and a config is plain data")
        if isinstance(value, (bool, str)) or value is None:
            return value
        if isinstance(value, (int, float)) and ":" not in source.value:  # YAML 1.1 reads 1:30 as 90
            return value
        return str(source.value)  # a date, or sexagesimal: as written

    def _refused(self, line: int, why: str, fix: str = "") -> Refused:
        return _refused(self.shown, self.text, line, why, fix)


def _named(path: tuple[str, ...]) -> str:
    return "key " + ".".join(path) if path else "the document"


# --- JSON


def _read_json(text: str, shown: str) -> Node:
    if not text.strip():
        return Node(None, shown)
    try:
        return read_json(text, shown, lambda line, why, fix: _refused(shown, text, line, why, fix))
    except json.JSONDecodeError as err:
        raise _refused(shown, text, err.lineno, err.msg[:1].lower() + err.msg[1:], "", err.colno) from None
    except RecursionError:
        raise Refused(
            "bad-config", f"cannot read {shown}", "it is nested too deeply", "a config needs ten levels at most"
        ) from None
    except ValueError as err:
        raise Refused("bad-config", f"cannot read {shown}", str(err), "quote what is meant as text") from None


def _refused(shown: str, text: str, line: int, why: str, fix: str = "", column: int = 0) -> Refused:
    """A fault at `line` that shows it between its neighbours, as compilers do."""
    last = max(1, len(text.splitlines()))
    if line > last:  # the parser stumbles over the end of the file
        line, column = last, 0
    where = ":".join(str(part) for part in (shown, line, column) if part)
    return Refused("bad-config", f"cannot read {where}", why + _context(text, line), fix or "mend the line marked >")


def _context(text: str, line: int) -> str:
    if line < 1:
        return ""
    lines = text.splitlines()
    shown = ""
    for number in range(max(1, line - 1), min(len(lines), line + 1) + 1):
        mark = ">" if number == line else " "
        written = lines[number - 1][:200].replace("\t", "→")
        shown += f"\n  {mark} {number:4d} | {''.join(ch if ch.isprintable() else '?' for ch in written)}"
    return shown

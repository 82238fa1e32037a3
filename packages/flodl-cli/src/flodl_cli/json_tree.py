"""A JSON file as nodes that know their lines. Read twice: by the standard library, which says what is wrong in it, then
by its tokens, which know where they stand.
"""

from __future__ import annotations

import json
import math
import re

from flodl_cli.node import Node, flaw_of_text
from flodl_wire.faults import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    Complain = Callable[[int, str, str], Refused]

_TOKEN = re.compile(r'[ \t\n\r]*([{}\[\],:]|"(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+)', re.DOTALL)


def read_json(text: str, shown: str, refused: Complain) -> Node:
    """The document in `text`, which is not blank. `refused(line, why, fix)` makes the fault for what JSON allows and a
    config does not. Raises json.JSONDecodeError, RecursionError, ValueError as the standard library does.
    """

    def constant(word: str) -> NoReturn:
        line = text.count("\n", 0, text.find(word)) + 1
        raise refused(line, f"it holds {word}, which is no number a tool can use", "write a number")

    def number(word: str) -> float:
        return float(word) if math.isfinite(float(word)) else constant(word)

    json.loads(text, parse_constant=constant, parse_float=number)
    return _Tree(text, shown, refused).value()


class _Tree:
    def __init__(self, text: str, shown: str, refused: Complain) -> None:
        self.shown = shown
        self.refused = refused
        self.tokens = self._tokens(text)

    def _tokens(self, text: str) -> Iterator[tuple[str, int]]:
        line, seen = 1, 0
        for match in _TOKEN.finditer(text):
            line += text.count("\n", seen, match.start(1))
            seen = match.start(1)
            yield match[1], line

    def value(self, token: str = "", line: int = 0) -> Node:
        if not token:
            token, line = next(self.tokens)
        if token == "{":
            return Node(self._mapping(), self.shown, line)
        if token == "[":
            items: list[Node] = []
            while (token_line := next(self.tokens))[0] != "]":
                if token_line[0] != ",":
                    items.append(self.value(*token_line))
            return Node(items, self.shown, line)
        value = json.loads(token)
        if isinstance(value, str):
            self._check(value, line)
        return Node(value, self.shown, line)

    def _check(self, text: str, line: int) -> None:
        if flaw := flaw_of_text(text):
            raise self.refused(line, flaw, "take it out")

    def _mapping(self) -> dict[str, Node]:
        mapping: dict[str, Node] = {}
        while (token_line := next(self.tokens))[0] != "}":
            token, line = token_line
            if token == ",":
                continue
            name = json.loads(token)
            self._check(name, line)
            if name in mapping:
                why = f"key {name} stands twice in one block: lines {mapping[name].line} and {line}"
                raise self.refused(line, why, "keep one of the two")
            next(self.tokens)  # the colon
            mapping[name] = self.value()
            mapping[name].line = line  # of the key, as for YAML
        return mapping

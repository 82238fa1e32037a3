"""Names that may stand in one place only, or nowhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tools.rules.finding import Finding, Tree

INTERNAL = re.compile("FLODL_" + r"INTERNAL_[A-Z]\w*")
ONE_PLACE = "packages/flodl-wire/src/flodl_wire/environ.py"
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc", "shared"}


def internal_names_in_one_file(tree: Tree) -> Iterator[Finding]:
    for file in tree.files:
        # pages and docstrings tell people what the names are; code takes them from the one file
        if file == ONE_PLACE or file.endswith((".md", ".json")):
            continue
        for name, line in _in_strings(tree.module(file)) if file.endswith(".py") else _in_lines(tree.text(file)):
            yield Finding(
                file,
                line,
                f"{name} is spelled out",
                "an environment name is written once, so that a typo cannot make two",
                "use flodl_wire.environ (add the name there when it is new)",
            )


def _in_lines(text: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(text.splitlines(), 1):
        for name in INTERNAL.findall(line):
            yield name, number


def _in_strings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names in string constants; a statement that is only a string is a docstring."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in INTERNAL.findall(node.value):
                yield name, node.lineno
        yield from _in_strings(node)


def no_vague_modules(tree: Tree) -> Iterator[Finding]:
    seen = set()
    for file in tree.python:
        path = PurePosixPath(file)
        named = [(folder.name, str(folder)) for folder in path.parents] + [(path.stem, file)]
        for name, found in named:
            if name.lower() in VAGUE and found not in seen:
                seen.add(found)
                yield Finding(
                    found,
                    1,
                    f"{name!r} is the name of a module or folder",
                    "such a name says nothing about what is inside, so everything ends up there",
                    "name it by the noun it is about: ledger, door, quorum",
                )

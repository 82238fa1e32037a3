"""Tests wait for facts, never on a sleep: a sleep is too long on every machine but the one where it is too short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from tools.rules.finding import Finding, Tree

PLAYS = "# plays "  # behind a sleep that is itself what the test shows: how long somebody stands still, a device's pace


def no_sleep_in_tests(tree: Tree) -> Iterator[Finding]:
    for file in tree.python:
        if not _of_tests(PurePosixPath(file)):
            continue
        module, lines = tree.module(file), tree.text(file).splitlines()
        polls = set() if _holds_tests(PurePosixPath(file)) else _inside_while(module)
        for node in ast.walk(module):
            if not isinstance(node, ast.Call) or not _is_sleep(node) or node in polls:
                continue
            if PLAYS not in lines[node.end_lineno - 1 if node.end_lineno else node.lineno - 1]:
                yield Finding(
                    file,
                    node.lineno,
                    "a test sleeps",
                    "it wastes time where the fact comes sooner and fails where it comes later",
                    "wait for the fact: a line, a file, a closed socket, an exit, else look again and again within a "
                    f"deadline (`until`); a sleep that is what the test shows has `{PLAYS}…` behind it",
                )


def _of_tests(path: PurePosixPath) -> bool:
    return _holds_tests(path) or "tests" in path.parts or path.parts[0] == "integration"


def _holds_tests(path: PurePosixPath) -> bool:
    """These look again and again through their helpers alone, which have the deadline."""
    return path.name.startswith("test_") or path.name == "conftest.py"


def _inside_while(module: ast.Module) -> set[ast.AST]:
    loops = (node for node in ast.walk(module) if isinstance(node, ast.While))
    return {inner for loop in loops for inner in ast.walk(loop)}


def _is_sleep(call: ast.Call) -> bool:
    """`sleep` of anything but asyncio's 0, which gives way to the loop; and the wait for an event that nobody has."""
    called = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if called == "wait" and isinstance(call.func, ast.Attribute) and isinstance(made := call.func.value, ast.Call):
        return getattr(made.func, "attr", getattr(made.func, "id", "")) == "Event" and bool(call.args or call.keywords)
    gives_way = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return called == "sleep" and not gives_way

"""Tests wait for events, never on a sleep: a sleep is too long on every machine but the one where it is too short."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.rules.finding import Finding, Tree


def no_sleep_in_tests(tree: Tree) -> Iterator[Finding]:
    for file in tree.python:
        name = file.split("/")[-1]
        if not (name.startswith("test_") or name == "conftest.py"):
            continue
        for node in ast.walk(tree.module(file)):
            if isinstance(node, ast.Call) and _is_sleep(node):
                yield Finding(
                    file,
                    node.lineno,
                    "a test sleeps",
                    "it wastes time where the event comes sooner and fails where it comes later",
                    "wait for the event: a line, a file, a closed socket, an exit (asyncio.sleep(0) is fine)",
                )


def _is_sleep(call: ast.Call) -> bool:
    called = getattr(call.func, "attr", getattr(call.func, "id", ""))
    yields = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return called == "sleep" and not yields

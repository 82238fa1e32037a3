"""A command line as Python reads it: which interpreter, with which options, runs what. Pure.

Only what a fork can do as well is recognised (preload.py); for everything else the answer is None, and the command is
executed as it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_INTERPRETER = re.compile(r"python(3(\.\d+)?)?")
_FLAGS = frozenset("bBEIOPqsu")  # have their effect when the interpreter starts, and keep it over a fork
_X = frozenset(
    ("dev", "faulthandler", "frozen_modules", "int_max_str_digits", "no_debug_ranges", "pycache_prefix", "utf8",
     "warn_default_encoding")
)  # fmt: skip


@dataclass(frozen=True)
class PythonCommand:
    kind: str  # script | module
    name: str  # of it, as typed
    head: int  # words before it: the interpreter and its options
    arguments: int  # words before its own arguments


def read_command(argv: list[str]) -> PythonCommand | None:
    """`argv` as ``python [options] script …`` or ``python [options] -m module …``, else None."""
    if not argv or not _INTERPRETER.fullmatch(argv[0].rpartition("/")[2]):
        return None
    at = 1
    while at < len(argv):
        word = argv[at]
        if not word.startswith("-"):
            return PythonCommand("script", word, at, at + 1) if word else None
        letters = word[1:].lstrip("".join(_FLAGS))
        if not letters:
            if word == "-":
                return None  # the program comes on stdin
            at += 1
            continue
        option, value = letters[0], letters[1:]
        used = 1
        if not value:
            if at + 1 == len(argv):
                return None
            value, used = argv[at + 1], 2
        if option == "m":
            return PythonCommand("module", value, at, at + used) if len(letters) == len(word) - 1 else None
        if option != "W" and not (option == "X" and value.partition("=")[0] in _X):
            return None
        at += used
    return None

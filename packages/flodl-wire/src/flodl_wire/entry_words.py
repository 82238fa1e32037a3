"""Which words of a command are the program and which its arguments. Pure.

A walk-in runs its own program with the arguments that the controller states, so both sides must cut a command at the
same place: behind the script of an interpreter, behind ``-m module``, behind the line of a shell, else behind the first
word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PYTHON = re.compile(r"(python|pypy)[0-9.]*\Z")
_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
_VALUE_OPTIONS = "WX"  # options of python that take the next word when nothing stands behind them


@dataclass(frozen=True)
class Words:
    """`script` is the Python file among `program`, "" when there is none to look at (a module, a binary, a shell)."""

    program: list[str]
    args: list[str]
    script: str = ""


def split(argv: Sequence[str]) -> Words:
    """`argv` cut into program and arguments."""
    words = list(argv)
    name = words[0].rpartition("/")[2] if words else ""
    if _PYTHON.match(name):
        return _python(words)
    if name in _SHELLS and len(words) > 2 and words[1] == "-c":
        return Words(words[:4], words[4:])  # sh -c LINE NAME words…
    return Words(words[:1], words[1:], words[0] if name.endswith(".py") else "")


def _python(words: list[str]) -> Words:
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        option = words[at]
        at += 1
        if option.startswith("--"):
            continue
        for place, letter in enumerate(option[1:], 2):
            rest = option[place:]
            if letter in "mc":
                end = at if rest else at + 1
                return Words(words[:end], words[end:])
            if letter in _VALUE_OPTIONS:
                at += 0 if rest else 1
                break
    script = words[at] if at < len(words) else ""
    return Words(words[: at + 1], words[at + 1 :], script if script != "-" else "")

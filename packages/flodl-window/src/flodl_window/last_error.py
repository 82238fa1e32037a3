"""What a program that failed said of it: the one line out of its last ones that belongs into a headline. Pure.

Python prints the exception's line behind the traceback and ends with 1, so a traceback counts for that code only: a
program that logs one and goes on ends otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from flodl_window.live.tails import harmless

_TRACEBACK = re.compile(r"^(?P<before>(?:\[rank\d+\]: )?[\s|+]*)(?:Original |Exception Group )?Traceback \(most ")
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?::? .*)?$")  # a SyntaxError has no traceback
_OURS = re.compile(r"^flodl(?:-\w+)?: (?P<said>.+)")
_WORDS = re.compile(r"^(?:[\w./-]+: error: .+|(?:\S*/)?(?:sh|bash|dash|env|python[\d.]*): .+)")  # argparse, shells
_DEADLY = re.compile(r"^\s*(?P<said>Fatal Python error: .+|what\(\): +.+|terminate called .+)")
MOST = 300  # characters


def last_error(lines: Sequence[str], code: int | None, signal: int | None = None) -> str:
    """The line, harmless, without its ``flodl:``; "" where nothing in `lines` is one."""
    kept = [harmless(line, 4 * MOST) for line in lines]
    found = _dying(kept) if signal is not None else _failing(kept, code)
    return found if len(found) <= MOST else found[: MOST - 1] + "…"


def _dying(lines: list[str]) -> str:
    said = [match["said"] for line in lines if (match := _DEADLY.match(line))]
    return said[-1] if said else ""


def _failing(lines: list[str], code: int | None) -> str:
    if code == 1:
        if (raised := _raised(lines)) or (ours := _ours(lines)):
            return raised or ours
        if loose := [line for line in lines if _EXCEPTION.match(line)]:
            return loose[-1]
    said = [line for line in lines if _WORDS.match(line)]
    return said[-1] if said else _ours(lines)


def _ours(lines: list[str]) -> str:
    """A fault of ours is told in its own words (planes' fault_hook.py)."""
    said = [match["said"] for line in lines if (match := _OURS.match(line))]
    return said[-1] if said else ""


def _raised(lines: list[str]) -> str:
    """The exception behind the last traceback, without what torch and exception groups put in front of each line."""
    for at in range(len(lines) - 1, -1, -1):
        if (head := _TRACEBACK.match(lines[at])) is None:
            continue
        before = head["before"]
        rest = [_without(before, line) for line in lines[at + 1 :]]
        for place, line in enumerate(rest):
            if line.strip() and not line[0].isspace():
                more = rest[place + 1].strip() if line.endswith(":") and place + 1 < len(rest) else ""
                return f"{line} {more}".rstrip()
    return ""


def _without(before: str, line: str) -> str:
    own = line.startswith(before) or not line[: len(before)].strip(" |+")
    return line[len(before) :] if own else line

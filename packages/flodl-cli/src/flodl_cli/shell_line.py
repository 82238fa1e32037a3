"""A `run:` line and the words typed after the command, as the argument vector of one process.

A plain line is split here, so that no shell stands between us and the program (signals and exit codes are the program's
own). Whatever a shell would interpret goes to `sh -c`, with the words as positional parameters: they are never quoted
into text, so they arrive byte for byte.
"""

from __future__ import annotations

import re
import shlex

from flodl_wire.faults import Refused

_META = re.compile(r"[|&;<>()$`\\*?\[\]#~{}\n]")
_SHELL_WORDS = frozenset(  # reserved words and builtins: no program of that name would do the same
    word
    for line in (
        "! . : alias bg break case cd command continue do done elif else esac eval exec exit export fc fg fi for",
        "getopts hash if in jobs local read readonly return set shift source then time times trap type ulimit",
        "umask unalias unset until wait while",
    )
    for word in line.split()
)
_PLACED = re.compile(r"\$\{?[@*1-9]")


def argv_of(line: str, tokens: list[str], name: str) -> list[str]:
    """The argument vector for the `run:` line of the command `name` with `tokens` behind it.

    Raises Refused when the tokens cannot be put behind the line without changing what it means.
    """
    line = line.strip()
    words = _plain_words(line)
    if words is not None:
        return words + tokens
    if tokens and not _PLACED.search(line):
        _check_end(line, name)
        line += ' "$@"'
    return ["sh", "-c", line, name, *tokens]


def _plain_words(line: str) -> list[str] | None:
    """The words of a line that needs no shell; None when it does."""
    if _META.search(line):
        return None
    try:
        words = shlex.split(line)
    except ValueError:  # an unclosed quote: the shell says it better
        return None
    if not words or "=" in words[0] or words[0] in _SHELL_WORDS:
        return None
    return words


def _check_end(line: str, name: str) -> None:
    last = line.splitlines()[-1]
    if re.search(r"(^|\s)#", last) or last.rstrip().endswith(("&", ";")) or "<<" in line:
        raise Refused(
            "no-room-for-arguments",
            f"cannot pass arguments to {name!r}",
            f"nothing can stand behind the last line of its `run:`: {last.strip()}",
            'write "$@" in the line where the arguments belong',
        )

"""The questions of the wizard: on stderr, so that stdout stays the result; never where nobody sits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from flodl_wire.faults import Refused

T = TypeVar("T")


class Asker:
    """`at_terminal`: somebody can answer. `yes`: ordinary defaults are taken unasked; consent is never ordinary."""

    def __init__(self, *, at_terminal: bool, yes: bool) -> None:
        self.at_terminal = at_terminal and not yes
        self.yes = yes
        self._missing: list[str] = []

    def ask(self, question: str, default: str, flag: str, read: Callable[[str], T]) -> T:
        """What `read` makes of an answer (the default for an empty one); one that it refuses is asked for again.

        Where nobody sits the default is taken under --yes, and missing otherwise.
        """
        while self.at_terminal:
            try:
                return read(_read(f"{question} [{default}]: ") or default)
            except Refused as fault:
                sys.stderr.write(fault.render() + "\n")
        if not self.yes:
            self._missing.append(flag)
        return read(default)

    def consent(self, question: str) -> bool:
        """False unless somebody says y."""
        return self.at_terminal and _read(f"{question} [y/N]: ").lower() in ("y", "yes")

    def check(self) -> None:
        """Raises Refused when decisions were needed and nobody was there."""
        if self._missing:
            raise Refused(
                "undecided",
                "cannot set up the farm",
                f"nobody is at a terminal to decide: {' '.join(self._missing)}",
                "say so with these flags, or take the defaults with --yes",
            )


def _read(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:  # Ctrl-D: no answer is no decision
        sys.stderr.write("\n")
        raise KeyboardInterrupt
    return line.strip()

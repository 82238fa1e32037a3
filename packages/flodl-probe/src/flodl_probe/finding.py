"""What a check says: one sentence of what is so, and where that is bad, why and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "error"]

_ORDER = ("ok", "warning", "error")


class Finding(msgspec.Struct, frozen=True):
    """`check` is a short stable word for scripts; `fix` is a command or a line of fdl.yml where there is one."""

    check: str
    level: Level
    what: str
    why: str = ""
    fix: str = ""

    def sentence(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what


def ok(check: str, what: str) -> Finding:
    return Finding(check, "ok", what)


def warning(check: str, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(check, "warning", what, why, fix)


def error(check: str, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(check, "error", what, why, fix)


def worst(levels: Iterable[Level]) -> Level:
    return max(levels, key=_ORDER.index, default="ok")

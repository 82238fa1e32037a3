"""Dial again or stop: what `fdl join` does after each attempt. Pure; the shell sleeps.

    attempt ──▶ permanent flaw of this box ──▶ Stop 2        (dialling later would not help; systemd hears of it)
            ──▶ one-shot                   ──▶ Stop with the agent's own code
            ──▶ a run was run, or the attempt lasted         ──▶ Again after 5 s: re-armed
            ──▶ anything else                                ──▶ Again after 5, 10, 20, 40, 60, 60 … s

A window is known by its instance, so that a run which this host has finished is not joined a second time while its
window still answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from flodl_wire import exits

FIRST = 5.0  # seconds, as in the reference
LONGEST = 60.0
STEADY = 120.0  # an attempt that lasted so long was no failure to get in
PERMANENT = 2  # `fdl join` alone: a flaw of this box


@dataclass(frozen=True)
class Attempt:
    """What one attempt came to. `code` is the agent's; `lasted` in seconds; `why` and `fix` for the one line."""

    code: int
    permanent: bool = False
    instance: str = ""  # of the window that let us in
    formed: bool = False  # a world was formed with us in it
    lasted: float = 0.0
    why: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Again:
    after: float


@dataclass(frozen=True)
class Stop:
    code: int


Decision: TypeAlias = Again | Stop


class Persist:
    """`scale` moves every pause (FLODL_NET_TIMEOUT_SCALE)."""

    def __init__(self, *, persist: bool, scale: float = 1.0) -> None:
        self.finished = ""  # instance of the window whose run we have been through
        self._persist = persist
        self._scale = scale
        self._pause = FIRST

    def ended(self, attempt: Attempt) -> Decision:
        """The attempt is over: what now?"""
        if attempt.formed and attempt.instance:
            self.finished = attempt.instance
        if attempt.permanent:
            return Stop(PERMANENT)
        if not self._persist:
            return Stop(attempt.code)
        if attempt.formed or attempt.code == exits.DONE or attempt.lasted >= STEADY * self._scale:
            self._pause = FIRST
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        return Again(pause * self._scale)


class Lines:
    """One line a try: what came of it and when the next is. The fix stands below it when it is a new one."""

    def __init__(self) -> None:
        self._fix = ""

    def after(self, attempt: Attempt, decision: Decision) -> str:
        """The line for a person, "" when there is nothing to say."""
        why = attempt.why or ("the run is over" if attempt.formed else "")
        new, self._fix = attempt.fix != self._fix, attempt.fix
        if isinstance(decision, Again):
            line = "; ".join(part for part in (why, f"dialling again in {decision.after:g} s") if part)
        else:
            line = why
        return f"{line}\nfix: {attempt.fix}" if line and attempt.fix and new else line

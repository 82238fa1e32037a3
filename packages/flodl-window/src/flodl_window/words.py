"""Counts, lists and endings in the words people use."""

from __future__ import annotations

import signal
from collections.abc import Sequence


def count(number: int, noun: str) -> str:
    """ "1 rank", "2 ranks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Sequence[object], most: int = 8) -> str:
    """ "a, b, c", cut after `most` names."""
    shown = ", ".join(str(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def spans(numbers: Sequence[int]) -> str:
    """ "0-1" for [0, 1], "0-1, 4" for [0, 1, 4]."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def ranks_text(numbers: Sequence[int]) -> str:
    """ "rank 2", "ranks 0-1"."""
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {spans(numbers)}"


def ending(
    code: int | None,
    sig: int | None,
    out_of_memory: bool = False,
    stood_still_s: float = 0.0,
    expelled_s: float | None = None,
) -> str:
    """How a process ended: "exit 3", "killed by signal 9 (out of memory?)". Or by us: `stood_still_s`, behind its
    training, where its keeper waited so long; `expelled_s`, in its training, where the coordinator did.
    """
    if stood_still_s:
        return f"never exited: stopped by a signal for {stood_still_s:.0f} s, then killed"
    if expelled_s is not None and sig == signal.SIGKILL:
        return f"stood still for {expelled_s:.0f} s and was ended (stall_timeout)"
    if sig is None:
        return f"exit {code}"
    if out_of_memory:
        return f"killed by signal {sig} (out of memory)"
    if sig == signal.SIGKILL:
        return f"killed by signal {sig} (out of memory?)"
    try:
        return f"killed by signal {sig} ({signal.Signals(sig).name})"
    except ValueError:
        return f"killed by signal {sig}"


def ending_of(returncode: int) -> str:
    """The same from a subprocess's return code (negative: signal)."""
    return ending(None, -returncode) if returncode < 0 else ending(returncode, None)

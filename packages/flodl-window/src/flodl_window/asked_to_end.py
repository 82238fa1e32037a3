"""What a signal to the launcher means: the first ends the run gracefully, a later one leaves at once. Pure."""

from __future__ import annotations

from enum import Enum

TOGETHER = 0.1  # seconds in which signals are one: `timeout` and a closed terminal send to a process and to its group


class Wish(Enum):
    END = "end the run"
    SAME = "what was asked already"
    LEAVE = "leave at once"


class AskedToEnd:
    """Remembers when the first signal came; `now` is any monotonic clock in seconds."""

    def __init__(self) -> None:
        self._since: float | None = None

    def heard(self, now: float, *, over: bool) -> Wish:
        """`over`: the run has ended, and its last state is still being served."""
        if self._since is None:
            self._since = now
            return Wish.LEAVE if over else Wish.END
        return Wish.SAME if now - self._since < TOGETHER else Wish.LEAVE

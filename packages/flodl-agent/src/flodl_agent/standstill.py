"""Does a rank, or its relay, stand still behind the training? Pure; standard library only (the keeper uses it).

What a script does there is its own, and may take hours: it evaluates, it draws, it waits for a disk. So its silence
says nothing. But a process that a signal has stopped does none of that, and the run would wait for it without an end.
A rank may be a shell that waits for the Python it started, so all of its session is looked at: it stands still while
one of them is stopped and none of them gets any processor time. Who is held by a debugger has somebody who sits there.
"""

from __future__ import annotations

from flodl_agent.descent import Process
from flodl_agent.silence import Silence


class Standstill:
    """One child's. `now` is in seconds of any steady clock; `every`: seconds between two looks at most."""

    def __init__(self, limit: float, now: float) -> None:
        self._silence = Silence(limit, now)
        self.every = self._silence.every
        self._spent: set[tuple[int, int]] = set()

    def too_long(self, session: list[Process], now: float) -> float:
        """The seconds of it when they are too many, else 0."""
        spent = {(process.pid, process.spent) for process in session}
        moves, self._spent = spent != self._spent, spent
        stopped = any(process.stopped for process in session) and not any(process.traced for process in session)
        if moves or not stopped:
            self._silence.broken(now)
            return 0.0
        return self._silence.too_long(now, lambda: True)

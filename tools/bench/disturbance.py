"""How much of this box's processors others took while we measured: figures from a busy box say little."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
DISTURBED = 0.05  # of all processors; an idle desktop takes about 1 %


class Disturbance:
    """From now on. `living`: our processes that will still run when `share` is asked for; others must have been waited
    for by then, by us or by a child of ours that we waited for.
    """

    def __init__(self, living: Iterable[int] = ()) -> None:
        self._living = list(living)
        self._began, self._busy, self._own = time.monotonic(), busy(), self._ours()

    def share(self) -> float:
        """Of all processors' time since, what neither we nor our children took: 0 on an idle box."""
        whole = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        others = (busy() - self._busy) - (self._ours() - self._own)
        return max(0.0, others / whole) if whole > 0 else 0.0

    def _ours(self) -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used) + sum(map(processor_s, self._living))


def busy() -> float:
    """Seconds that all processors together were not idle, since the box started."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def processor_s(process: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS

"""Who descends from this process right now, and a signal to each of them. Standard library only: the keeper runs
without site-packages.

The one relation that can be trusted is the living one: a process whose chain of parents leads here. Pids that were
noted down earlier may belong to somebody else by now, names and command lines always may; so nothing here takes either.
A process that is a child subreaper (`become_subreaper`) is handed the orphans of its whole tree, so a descendant cannot
leave the chain: not by `setsid`, not by a double fork, not by the death of the shell in between.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    zombie: bool
    stopped: bool  # by a signal, or by a debugger
    traced: bool  # by a debugger
    spent: int  # processor time, in clock ticks
    started: int  # in clock ticks since boot: with the pid it names one process for good


def become_subreaper() -> None:
    """From now on the orphans of our tree become our children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send `number` to this process when the thread of `parent` that forked it ends; between fork and
    exec.
    """
    _prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:  # it ended before the request was in
        os.kill(os.getpid(), signal.SIGKILL)


def wake_with_parent() -> None:
    """Should this process be stopped when its parent dies, it goes on. To one that runs nothing happens."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT))


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def read_process(pid: int) -> Process | None:
    """What the kernel says of `pid`, None when there is none. The command's name may hold spaces and brackets: split
    behind the last.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs the keeper a third of its start
            text = file.read()
    except OSError:  # gone, or going
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    state = fields[0]
    zombie, stopped, traced = state in (b"Z", b"X"), state in (b"T", b"t"), state == b"t"
    spent = int(fields[11]) + int(fields[12])
    return Process(pid, int(fields[1]), int(fields[3]), zombie, stopped, traced, spent, int(fields[19]))


def descendants(root: int | None = None) -> list[Process]:
    """Every process whose chain of parents leads to `root` (this process), parents first, zombies included."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    found = [process for pid in pids if (process := read_process(pid))]
    children: dict[int, list[Process]] = {}
    for process in found:
        children.setdefault(process.parent, []).append(process)
    tree: list[Process] = []
    generation = children.get(root or os.getpid(), [])
    while generation:
        tree += generation
        generation = [child for process in generation for child in children.get(process.pid, [])]
    return tree


def send_signal(process: Process, number: int) -> bool:
    """Send `number` to `process` if it is still that very process; True when it went out.

    The pidfd is opened first and the identity checked after, so that a pid given to a stranger in between is never hit.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = read_process(process.pid)
        if now is None or now.started != process.started:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except OSError:  # it ended, or it runs as another user (sudo): nothing we could do
        return False
    finally:
        os.close(handle)


def kill_descendants() -> int:
    """KILL everything that descends from this process now; how many were hit. Call again until it says 0: a tree may
    still grow.
    """
    return sum(send_signal(process, signal.SIGKILL) for process in descendants() if not process.zombie)

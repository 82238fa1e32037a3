"""Who of a run is alive: found by a mark in its environment, by its host, and by role from its command line."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from flodl_wire import environ

MARK = "FLODL_TEST_MARK"

# Words of the command line that tell a role; the first that fits wins.
ROLES = {
    "launcher": ("flodl-window", "launch"),
    "fanout": ("flodl-agent", "fanout"),
    "agent": ("flodl-agent", "run"),
    "keeper": ("keeper",),
    "forkserver": ("forkserver.py",),
    "hub": ("flodl-planes", "hub"),
    "relay": ("flodl-planes", "relay"),
    "store": ("flodl_planes.hub.store_server",),
}


@dataclass(frozen=True)
class Process:
    pid: int
    began: int  # clock ticks since boot: with the pid, unique
    role: str
    argv: tuple[str, ...]
    stopped: bool = False

    def kill(self, signum: int = signal.SIGKILL) -> None:
        os.kill(self.pid, signum)

    def __str__(self) -> str:
        return f"{self.pid} {self.role}: {' '.join(self.argv)[:120]}"


def marked(mark: str) -> list[Process]:
    """Every live process that carries `mark` in the environment it was started with."""
    return [process for pid in _pids() if (process := _read(pid, mark.encode()))]


def among(pids: list[int]) -> list[Process]:
    return [process for pid in pids if (process := _read(pid, b""))]


def of_role(processes: list[Process], role: str) -> list[Process]:
    return [process for process in processes if process.role == role]


def descendants(root: int) -> list[Process]:
    """Of `root`, itself included, by parent links as they stand now."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        if fields := _stat(pid):
            children.setdefault(int(fields[1]), []).append(pid)
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return among(found)


def alive(process: Process) -> bool:
    again = _read(process.pid, b"")
    return again is not None and again.began == process.began


def stands_still(process: Process) -> bool:
    """Stopped by a signal, now."""
    return any(again.began == process.began and again.stopped for again in among([process.pid]))


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields behind the name: [0] state, [1] parent, …, [19] start time. None for the dead, zombies included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else fields


def _read(pid: int, mark: bytes) -> Process | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes() if pid != os.getpid() else b""
        argv = tuple(
            word.decode("utf-8", "replace") for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        )
    except OSError:
        return None
    fields = _stat(pid)
    if fields is None or mark not in environment:
        return None
    return Process(pid, int(fields[19]), _role(argv, environment), argv, fields[0] in "Tt")


def _role(argv: tuple[str, ...], environment: bytes) -> str:
    """A rank is a Python with a rank's environment; other programs, also those that a rank starts, go by their name."""
    program = Path(argv[0]).name.partition(":")[0] if argv else "?"
    if not program.startswith(("python", "flodl")):
        return program
    line = " ".join(argv)
    for role, words in ROLES.items():
        if all(word in line for word in words):
            return role
    return "rank" if f"\0{environ.LOCAL_RANK}=".encode() in b"\0" + environment else program

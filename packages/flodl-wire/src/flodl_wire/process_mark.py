"""Which process writes a run's folder, so that a reader can tell a run that goes on from one whose process is gone.

A process id alone would lie after a restart or a wrap-around; with the time of its start and the kernel's boot id it
names one process for good. Standard library only.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

NAME = "process.json"


def mark() -> dict[str, object]:
    """This process, for `lives` to find."""
    return {"pid": os.getpid(), "start": started(os.getpid()), "boot": boot_id(), "host": os.uname().nodename}


def write(folder: Path) -> None:
    """Leave the mark in `folder`. Raises OSError."""
    (folder / NAME).write_text(json.dumps(mark()) + "\n", encoding="utf-8")


def lives(marked: dict[str, object]) -> bool | None:
    """True while the marked process runs; None where that cannot be told (another box, no /proc)."""
    if marked.get("host") != os.uname().nodename or not marked.get("start"):
        return None
    if marked.get("boot") != boot_id():
        return False
    pid = marked.get("pid")
    return isinstance(pid, int) and started(pid) == marked.get("start")


def started(pid: int) -> int:
    """When the process began, in the kernel's ticks since boot; 0 when there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""

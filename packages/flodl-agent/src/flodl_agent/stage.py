"""The folders that ranks write to, proven writable by writing: rights, quotas and full disks are only known then."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from flodl_agent import mounts
from flodl_wire.faults import Broken, Refused

CACHE = "~/.flodl/data"  # what ranks keep on this box
PROBE = 64 * 1024  # bytes: more than a file system keeps in an inode
LOW = 1 << 30  # bytes free, below which it is said


def check() -> list[str]:
    """Notes on the stage folders. Raises Refused when one cannot be written to, Broken when its disk is full."""
    return [note for folder in (Path(CACHE).expanduser(), Path(tempfile.gettempdir())) for note in prove(folder)]


def prove(folder: Path) -> list[str]:
    what = f"cannot write to {folder}"
    probe = folder / f".flodl-probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with probe.open("wb") as file:
                file.write(bytes(PROBE))
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
    except OSError as err:
        if err.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Broken("no-space", what, "there is no space left", "make room there") from None
        raise Refused("unwritable", what, err.strerror or str(err), "make it writable for this user") from None
    return notes(folder)


def notes(folder: Path) -> list[str]:
    """What a person should know of a folder that works."""
    found = []
    under = mounts.holding(str(folder.resolve()))
    if under is not None and under.kind == "tmpfs":
        found.append(f"{folder} lies in memory (tmpfs): what is kept there is gone after a reboot")
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < LOW:
        found.append(f"{folder} has {free / 1e6:.0f} MB left")
    return found

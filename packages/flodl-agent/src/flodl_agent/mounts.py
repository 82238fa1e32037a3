"""What is mounted where, by the kernel's own list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LIST = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    point: str
    kind: str  # ext4, tmpfs, fuse.sshfs
    source: str  # /dev/vda1, user@host:/path


def parse(text: bytes) -> list[Mount]:
    """In the order of mounting: of two at one place the later one is seen. Format: proc_pid_mountinfo(5)."""
    found = []
    for line in text.splitlines():
        head, mark, tail = line.partition(b" - ")
        fields, rest = head.split(b" "), tail.split(b" ")
        if mark and len(fields) > 4 and len(rest) > 1:
            found.append(Mount(*(_plain(part) for part in (fields[4], rest[0], rest[1]))))
    return found


def at(path: str, mounts: list[Mount] | None = None) -> Mount | None:
    """What is mounted at exactly that place. Asks nothing of the file system itself, which may hang."""
    return next((each for each in reversed(listed(mounts)) if each.point == path), None)


def holding(path: str, mounts: list[Mount] | None = None) -> Mount | None:
    """The file system that `path` (absolute, without links) lies on."""
    there = [each for each in listed(mounts) if (path + "/").startswith(each.point.rstrip("/") + "/")]
    return max(there, key=lambda each: len(each.point), default=None)


def listed(mounts: list[Mount] | None) -> list[Mount]:
    return parse(LIST.read_bytes()) if mounts is None else mounts


def _plain(field: bytes) -> str:
    return _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), field).decode("utf-8", "surrogateescape")

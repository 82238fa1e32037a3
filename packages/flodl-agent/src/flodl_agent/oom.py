"""Has the kernel's out-of-memory killer struck? Its own counters, read around a death by signal 9. Standard library
only.

A cgroup's counter speaks of this host's share alone; ``/proc/vmstat`` of the whole box, so that a kill elsewhere in the
same second is mistaken for ours: the message that comes of it ends in a question mark.
"""

from __future__ import annotations

_VMSTAT = "/proc/vmstat"
_ROOT = "/sys/fs/cgroup"


def counter_files(membership: str) -> list[str]:
    """Where the counters may stand, given ``/proc/self/cgroup``: version 2, version 1, each also as seen inside a
    container, the box.
    """
    files = []
    for line in membership.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            files += [f"{_ROOT}{path.rstrip('/')}/memory.events", f"{_ROOT}/memory.events"]
        elif "memory" in controllers.split(","):
            files += [f"{_ROOT}/memory{path.rstrip('/')}/memory.oom_control", f"{_ROOT}/memory/memory.oom_control"]
    return [*dict.fromkeys(files), _VMSTAT]


def read_count(text: str) -> int | None:
    """The ``oom_kill`` line of a counter file."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    return None


class OomWatch:
    """``refresh()`` every second or so; ``struck()`` right after a death: did a counter rise within the last two
    refreshes?
    """

    def __init__(self) -> None:
        files = counter_files(_read("/proc/self/cgroup"))
        self._files = [file for file in files if read_count(_read(file)) is not None]
        self._before = self._last = self._counts()

    def refresh(self) -> None:
        self._before, self._last = self._last, self._counts()

    def struck(self) -> bool:
        return any(now > then for now, then in zip(self._counts(), self._before, strict=True))

    def _counts(self) -> list[int]:
        return [read_count(_read(file)) or 0 for file in self._files]


def _read(path: str) -> str:
    try:
        with open(path) as file:  # noqa: PTH123 - pathlib costs the keeper a third of its start
            return file.read()
    except OSError:
        return ""

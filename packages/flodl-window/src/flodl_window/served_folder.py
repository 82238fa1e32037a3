"""The folder that this box publishes to, looked at while the window is open."""

from __future__ import annotations

from pathlib import Path

from flodl_wire.served_runs import FILE, runs_of


class ServedFolder:
    """`folder`: where this box publishes to; None when it does not."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._seen: tuple[int, int, int] | None = None

    def news(self) -> tuple[str, ...] | None:
        """Every run that was ever published there, the newest last; None when that is what was said last. It costs one
        stat while nothing changes: a publish puts a new file in the place of the old one.
        """
        if self._folder is None:
            return None
        try:
            found = (self._folder / FILE).stat()
        except OSError:
            return None  # nothing was published yet, or it cannot be read: what is known holds
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen == self._seen:
            return None
        self._seen = seen
        return tuple(runs_of(self._folder))

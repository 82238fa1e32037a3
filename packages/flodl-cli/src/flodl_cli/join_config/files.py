"""Writing a set of files so that a full disk, a Ctrl-C or a killed wizard leaves either all of them old or none half.

First every new content is on disk beside its target, then all are renamed. Between two renames a kill can still fall;
what is then mixed, the next run mends, since it derives every file from the key and the overlay's token.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from flodl_wire.faults import Broken

SECRET = 0o600
OPEN = 0o644


@dataclass(frozen=True)
class Change:
    """`path` is absolute; its folder need not be there. An existing file that holds `data` is not touched."""

    path: str
    data: bytes
    mode: int = OPEN


def state(change: Change) -> str:
    """new, changed or unchanged: what writing it would do."""
    try:
        with open(change.path, "rb") as file:
            same = file.read() == change.data
        tight = not (change.mode == SECRET and os.stat(change.path).st_mode & 0o077)
        return "unchanged" if same and tight else "changed"
    except FileNotFoundError:
        return "new"


def write_all(changes: list[Change]) -> None:
    """Raises Broken, with nothing changed, when they do not all fit."""
    staged: list[tuple[str, str]] = []
    made: list[str] = []
    try:
        for change in changes:
            if state(change) == "unchanged":
                continue
            made += _make_folder(os.path.dirname(change.path))
            staged.append((_stage(change), change.path))
        with _no_interruption():
            for temporary, path in staged:
                os.replace(temporary, path)
            staged.clear()
            made.clear()
    except OSError as err:
        where = f"{err.filename}: " if err.filename else ""
        raise Broken(
            "unwritable", "cannot write the farm's files", f"{where}{err.strerror or err}", "nothing was changed"
        ) from None
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _make_folder(folder: str) -> list[str]:
    """The folders that had to be made, outermost first."""
    if os.path.isdir(folder):
        return []
    above = _make_folder(os.path.dirname(folder))
    os.mkdir(folder, 0o700 if os.path.basename(folder) == "keys" else 0o755)
    return [*above, folder]


def _stage(change: Change) -> str:
    """`change` in a file of its own beside its target. What a link leads to is the target."""
    handle, temporary = tempfile.mkstemp(prefix=".new-", dir=os.path.dirname(change.path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(change.data)
            file.flush()
            os.fchmod(file.fileno(), _mode(change))
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _mode(change: Change) -> int:
    """A file that is there keeps its mode, but a secret loses what others may do with it."""
    try:
        there = os.stat(change.path).st_mode & 0o777
    except OSError:
        return change.mode
    return there & 0o700 if change.mode == SECRET else there


@contextlib.contextmanager
def _no_interruption() -> Iterator[None]:
    """Ctrl-C waits until the renames are through."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

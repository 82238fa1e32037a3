"""The room that tests of several workers share: a test marked `alone` has it for itself, the others wait meanwhile.

Two locked files below build/: who wants in goes through the gate first, so that one that waits for an empty room is not
overtaken for ever by those that share it. The kernel lets go of the locks of a worker that dies.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM = Path(__file__).resolve().parents[1] / "build" / "integration"


@contextmanager
def room(*, alone: bool, folder: Path = ROOM) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "gate").open("w") as gate, (folder / "room").open("w") as inside:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(inside, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(inside, fcntl.LOCK_UN)

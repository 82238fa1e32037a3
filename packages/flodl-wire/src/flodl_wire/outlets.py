"""Stdout and stderr of an executable, when they cannot be written: a full disk, a reader that went away.

What a command does must not end in the middle because of what it says about it. So a write that fails is noted, what
follows is dropped, and the command goes on to its own exit code; `faults.guarded` judges what was lost at its end. An
output without end asks `reader_left`. No third-party import, and next to no other: the hot commands load this module.
"""

from __future__ import annotations

import io
import sys

TYPE_CHECKING = False  # typing's own constant, without its import
if TYPE_CHECKING:
    from typing import TextIO


class Outlet(io.FileIO):
    """A standard stream's descriptor. `lost`: why a write failed; it is never tried again."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "wb", closefd=False)
        self.lost: OSError | None = None

    def write(self, data: object) -> int:
        left = memoryview(data).cast("B")  # type: ignore[arg-type]
        size = len(left)
        while left and self.lost is None:
            try:
                left = left[super().write(left) or 0 :]
            except OSError as err:
                self.lost = err
        return size


class Outlets:
    """Both streams while one command runs."""

    def __init__(self) -> None:
        self.work_done = False
        self._before = (sys.stdout, sys.stderr)
        self._out = self._err = None  # type: Outlet | None
        if sys.stdout is sys.__stdout__ and sys.stdout is not None:  # else somebody's own: a test's, or none at all
            self._out, sys.stdout = _through(sys.stdout)
        if sys.stderr is sys.__stderr__ and sys.stderr is not None:
            self._err, sys.stderr = _through(sys.stderr)

    @property
    def lost(self) -> OSError | None:
        """Why stdout, as far as it was flushed, is not what was printed; None when it is."""
        return self._out.lost if self._out is not None else None

    def remove(self) -> None:
        """Write what is left, and put the streams back: nobody writes through us any more."""
        global _open
        for stream, outlet in ((sys.stdout, self._out), (sys.stderr, self._err)):
            if outlet is not None:
                stream.flush()
        sys.stdout, sys.stderr = self._before
        _open = None


_open: Outlets | None = None


def install() -> Outlets:
    global _open
    _open = Outlets()
    return _open


def work_is_done() -> None:
    """What the command was asked for is done; all that it prints from here on tells of it."""
    if _open is not None:
        _open.work_done = True


def reader_left() -> bool:
    """True when whoever read our stdout reads no more, as far as it was flushed: an output without end may stop."""
    return _open is not None and isinstance(_open.lost, BrokenPipeError)


def _through(stream: TextIO) -> tuple[Outlet, TextIO]:
    """The same stream by way of an outlet."""
    stream.flush()
    assert isinstance(stream, io.TextIOWrapper)
    outlet = Outlet(stream.fileno())
    unbuffered = stream.write_through
    return outlet, io.TextIOWrapper(
        outlet if unbuffered else io.BufferedWriter(outlet),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=unbuffered,
    )

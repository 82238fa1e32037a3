"""Terminal and pipes, written by a thread of their own: a reader that stops (Ctrl-S, a paused pager) must not stop
the run.

On a terminal, text from afar loses its control characters, all but colour; in a file or pipe it stays as it came.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import sys
import threading
import time
from typing import TextIO

_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
_RESET = "\x1b[0m"
BACKLOG = 20_000  # pieces waiting; beyond that processes' lines are left out here (the log files have them)
GATHER = 0.01  # seconds in which lines gather: to wake this thread for each would cost the loop more than the writing
BATCH = 2000  # pieces written at once
CLEAR_LINE = "\r\x1b[K"


def for_terminal(text: str) -> str:
    """`text` without what could move the cursor, ring, or retitle the window; colours stay and are closed."""
    if text.isprintable():
        return text
    parts = _COLOUR.split(text)
    coloured = len(parts) > 1
    clean = "".join(
        part if at % 2 else "".join(ch if ch.isprintable() or ch == "\t" else _shown(ch) for ch in part)
        for at, part in enumerate(parts)
    )
    return clean + _RESET if coloured else clean


def _shown(ch: str) -> str:
    return "" if ch == "\r" else ch.encode("unicode_escape").decode("ascii")


class Console:
    """Two streams and, on a terminal, a status line under everything that is redrawn after each line."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._streams: dict[str, TextIO] = {"out": out or sys.stdout, "err": err or sys.stderr}
        for stream in self._streams.values():
            with contextlib.suppress(AttributeError, OSError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]
        self._terminal = {name: _is_terminal(stream) for name, stream in self._streams.items()}
        self.has_bar = self._terminal["err"] and os.environ.get("TERM", "") != "dumb"
        self._bar = ""
        self._left_out = 0
        self._put_in = self._taken = 0  # each counted by one thread only
        self._dead: set[str] = set()
        self._queue: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="console", daemon=True)
        self._thread.start()

    @property
    def width(self) -> int:
        try:
            return os.get_terminal_size(self._streams["err"].fileno()).columns
        except (OSError, ValueError, AttributeError):
            return 80

    def line(self, stream: str, text: str, *, droppable: bool = False) -> None:
        """One line to "out" or "err"; a droppable one is left out while too much waits."""
        if droppable and self._put_in - self._taken >= BACKLOG:
            self._left_out += 1
            return
        self._put_in += 1
        self._queue.put((stream, text))

    def bar(self, text: str) -> None:
        """What stands under the lines from now on ("" removes it); only drawn on a terminal."""
        if self.has_bar and self._put_in - self._taken < BACKLOG:
            self._put_in += 1
            self._queue.put(("bar", text))

    def close(self, seconds: float = 2.0) -> None:
        """Write what is left, but wait no longer than `seconds` for a reader that stands still."""
        self.bar("")
        self._queue.put(None)
        self._thread.join(seconds)

    @property
    def stuck(self) -> bool:
        """True while the thread still stands in a write."""
        return self._thread.is_alive()

    def _work(self) -> None:
        over = False
        while not over:
            batch = [self._queue.get()]
            if batch[0] is not None:
                time.sleep(GATHER)
            with contextlib.suppress(queue.Empty):
                while len(batch) < BATCH:
                    batch.append(self._queue.get_nowait())
            over = None in batch
            self._taken += len(batch)
            self._write([piece for piece in batch if piece is not None])

    def _write(self, batch: list[tuple[str, str]]) -> None:
        if self._bar:
            self._put("err", CLEAR_LINE)
        for stream, text in batch:
            if stream == "bar":
                self._bar = text
            else:
                shown = for_terminal(text) if self._terminal[stream] else text
                self._put(stream, shown + "\n")
        if self._left_out and self._queue.empty():
            self._put("err", f"flodl: {self._left_out} lines left out here, the log files have them\n")
            self._left_out = 0
        if self._bar:
            self._put("err", self._bar)
        for name in self._streams:
            self._put(name, "", flush=True)

    def _put(self, name: str, text: str, flush: bool = False) -> None:
        """A stream whose reader went away is left alone; the run goes on."""
        if name in self._dead:
            return
        try:
            self._streams[name].write(text)
            if flush:
                self._streams[name].flush()
        except (OSError, ValueError):
            self._dead.add(name)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (ValueError, AttributeError):
        return False

"""Progress of a script run alone: a bar on a terminal, now and then a line elsewhere. On stderr; stdout is the
script's own."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

REDRAW = 0.1  # seconds between two pictures of the bar
LINE_EVERY = 30.0  # seconds without a line before a log gets one, so that nobody stares at silence


class Bar:
    """`show` for every batch, `line` for what shall stay."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._terminal = self._out.isatty()
        self._next = 0.0
        self._drawn = False

    def line(self, text: str) -> None:
        """Print a line that stays, above the bar."""
        self._erase()
        print(text, file=self._out, flush=True)
        self._next = time.monotonic() + (0.0 if self._terminal else LINE_EVERY)

    def show(self, epoch: int, epochs: int, samples: int, dataset: int, rate: float) -> None:
        """`samples` of `dataset` of this epoch (0-based) are done, at `rate` samples per second."""
        now = time.monotonic()
        if now < self._next:
            return
        if not self._terminal:
            self.line(f"epoch {epoch + 1}/{epochs}: {samples}/{dataset} samples, {rate:.0f}/s")
            return
        self._next = now + REDRAW
        head, tail = f"epoch {epoch + 1}/{epochs} ", f" {samples}/{dataset}  {rate:.0f}/s"
        room = max(4, min(40, shutil.get_terminal_size().columns - len(head) - len(tail) - 1))
        full = min(room, room * samples // max(1, dataset))
        self._out.write(f"\r\x1b[K{head}{'█' * full}{'░' * (room - full)}{tail}")
        self._out.flush()
        self._drawn = True

    def close(self) -> None:
        self._erase()

    def _erase(self) -> None:
        if self._drawn:
            self._out.write("\r\x1b[K")
            self._drawn = False

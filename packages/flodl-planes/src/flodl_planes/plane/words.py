"""The control segment of a host: how far each rank's share of the round is, in one 64-bit word per rank, and its
scratch chunk.

    word = round << 32 | attempt << 24 | progress

so that a later round, a later attempt and more progress are all simply a larger number, and a word of an older round
counts as nothing. Progress is twice the number of chunks that are done, plus one while the chunk after them lies whole
in the rank's scratch: between those two a chunk is being written into the ranks' memory, and whoever finds a dead
rank's word there can finish the writing from the scratch without having to sum again what is half overwritten.

Each word is written by one process only (a dead rank's by the relay). An aligned 64-bit store is atomic on every
machine we run on; x86 keeps stores in order, elsewhere `fence` does.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.segment import Segment
from flodl_wire.plane_messages import CHUNK_BYTES

_STRIDE = 8  # int64 words: a cache line each, or the ranks' stores would fight over one

SPIN_S = 0.001  # a round of a small model is over by then
NAP_S = 0.00005  # first nap after it; doubled up to
LONGEST_NAP_S = 0.001
LOOK_S = 0.05  # how often somebody who waits looks whether the others still live


def control_bytes(ranks: int) -> int:
    """Size of the control segment for so many ranks."""
    return _words_bytes(ranks) + ranks * CHUNK_BYTES


def _words_bytes(ranks: int) -> int:
    return -(-ranks * _STRIDE * 8 // 4096) * 4096


def encode(round: int, attempt: int, progress: int) -> int:
    return (round & 0x7FFFFFFF) << 32 | (attempt & 0xFF) << 24 | progress


class Words:
    """The words and scratch chunks of `ranks` local ranks, by index."""

    def __init__(self, segment: Segment, ranks: int) -> None:
        self._words: NDArray[np.int64] = segment.array[: _words_bytes(ranks)].view(np.int64)[::_STRIDE]
        start = _words_bytes(ranks)
        self.scratch = [segment.array[start + i * CHUNK_BYTES : start + (i + 1) * CHUNK_BYTES] for i in range(ranks)]

    def read(self, index: int) -> int:
        return int(self._words[index])

    def write(self, index: int, word: int) -> None:
        """Publish: everything stored before is seen by whoever sees this word."""
        fence()
        self._words[index] = word


def _no_fence() -> None:
    """x86: stores are seen in the order they were made."""


_pair = threading.Lock()


def _lock_fence() -> None:
    """Two acquire/release pairs order everything before them before everything after (C11 RCsc atomics under Python's
    locks).
    """
    for _ in range(2):
        with _pair:
            pass


fence: Callable[[], None] = _no_fence if platform.machine() in ("x86_64", "AMD64", "i686") else _lock_fence


def wait_until(reached: Callable[[], bool], look: Callable[[], bool], spin_s: float = SPIN_S) -> bool:
    """Wait for `reached`: a spin that gives the processor away at each turn, then naps. True when it came true.

    `look` is called every LOOK_S; when it says True the wait is over (False). It may raise.
    """
    spin_until = time.monotonic() + spin_s
    nap, next_look = NAP_S, spin_until + LOOK_S
    while not reached():
        now = time.monotonic()
        if now < spin_until:
            os.sched_yield()
            continue
        if now >= next_look:
            if look():
                return reached()
            next_look = now + LOOK_S
        time.sleep(nap)
        nap = min(2 * nap, LONGEST_NAP_S)
    fence()
    return True

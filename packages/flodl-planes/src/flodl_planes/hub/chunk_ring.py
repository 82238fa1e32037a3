"""Eight chunks of one host's sum, on their way from socket to averager: what bounds the hub's memory per host."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.layout import Chunk
from flodl_wire.faults import Broken
from flodl_wire.frames import ChunkHead
from flodl_wire.plane_messages import CHUNK_BYTES

SLOTS = 8  # 8 MiB: a 1 Gbit/s link fills it in 67 ms, longer than any pause of the averager


class ChunkRing:
    """One receiving thread fills, whoever averages empties. A full ring holds the receiver back, and by TCP the
    host behind it.
    """

    def __init__(self) -> None:
        self._slots = np.empty((SLOTS, CHUNK_BYTES), np.uint8)
        self._trash = memoryview(bytearray(CHUNK_BYTES))
        self._changed = threading.Condition()
        self._awaited: tuple[int, int] | None = None
        self._chunks: list[Chunk] = []
        self._placed = self._filled = self._taken = 0

    def expect(self, round: int, attempt: int, chunks: list[Chunk]) -> None:
        """From now on these chunks of this attempt are taken, in this order; all others are thrown away."""
        with self._changed:
            self._awaited, self._chunks = (round, attempt), chunks
            self._placed = self._filled = self._taken = 0
            self._changed.notify_all()

    def stop(self) -> None:
        """Throw everything away until the next `expect`; ends the wait of a receiver."""
        with self._changed:
            self._awaited = None
            self._changed.notify_all()

    def place(self, head: ChunkHead, length: int) -> memoryview:
        """For the channel's decoder; blocks while the ring is full. Raises Broken for a chunk that is not the next."""
        with self._changed:
            key = (head.round, head.attempt)
            self._changed.wait_for(lambda: self._awaited != key or self._placed - self._taken < SLOTS)
            if self._awaited != key:
                return self._trash[:length]
            number = self._placed
            if number == len(self._chunks) or (head.offset, length) != self._chunks[number][-2:]:
                raise Broken(
                    "bad-chunk",
                    "cannot take a chunk of a host's sum",
                    f"{length} bytes at {head.offset} were not the next",
                )
            self._placed += 1
            return memoryview(self._slots[number % SLOTS, :length])  # type: ignore[arg-type]

    def filled(self, head: ChunkHead) -> None:
        """The chunk with this head has been received whole."""
        with self._changed:
            if self._awaited == (head.round, head.attempt):
                self._filled += 1

    def has(self, round: int, attempt: int) -> bool:
        """Whether the next chunk of that attempt is here."""
        with self._changed:
            return self._awaited == (round, attempt) and self._filled > self._taken

    def take(self) -> NDArray[np.uint8]:
        """The next chunk (sum layout), valid until `release`. Only when it is here."""
        with self._changed:
            return self._slots[self._taken % SLOTS, : self._chunks[self._taken].sum_bytes]

    def release(self, round: int, attempt: int) -> None:
        """The chunk that `take` gave is not needed any more."""
        with self._changed:
            if self._awaited == (round, attempt):
                self._taken += 1
                self._changed.notify_all()

"""Eight MiB of one host's sum, on their way from socket to averager: what bounds the hub's memory per host."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.encoding import sum_size
from flodl_planes.plane.layout import Chunk
from flodl_wire.faults import Broken
from flodl_wire.frames import ChunkHead
from flodl_wire.plane_messages import CHUNK_BYTES

ROOM = 8 * CHUNK_BYTES  # a 1 Gbit/s link fills it in 67 ms, longer than any pause of the averager
MOST_SLOTS = 1024  # of a tiny model


class ChunkRing:
    """One receiving thread fills, whoever averages empties. A full ring holds the receiver back, and by TCP the
    host behind it.
    """

    def __init__(self) -> None:
        self._room = np.empty(ROOM, np.uint8)
        self._slots = self._room.reshape(-1, CHUNK_BYTES)
        self._trash = memoryview(bytearray(CHUNK_BYTES))
        self._changed = threading.Condition()
        self._awaited: tuple[int, int] | None = None
        self._chunks: list[Chunk] = []
        self._sizes: list[int] = []
        self._placed = self._filled = self._taken = 0

    def expect(self, round: int, attempt: int, chunks: list[Chunk], wire: str = "float32") -> None:
        """From now on these chunks of this attempt are taken, in this order; all others are thrown away."""
        sizes = [sum_size(wire, chunk) for chunk in chunks]
        with self._changed:
            self._awaited, self._chunks, self._sizes = (round, attempt), chunks, sizes
            # One receive can complete many small chunks, and all must find a slot, or it would wait for itself: the
            # room is cut into as many slots as fit.
            slot = -(-max(sizes, default=CHUNK_BYTES) // 64) * 64
            count = min(ROOM // slot, MOST_SLOTS)
            self._slots = self._room[: count * slot].reshape(count, slot)
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
            self._changed.wait_for(lambda: self._awaited != key or self._placed - self._taken < len(self._slots))
            if self._awaited != key:
                return self._trash[:length]
            number = self._placed
            if number == len(self._chunks) or (head.offset, length) != (
                self._chunks[number].sum_offset,
                self._sizes[number],
            ):
                raise Broken(
                    "bad-chunk",
                    "cannot take a chunk of a host's sum",
                    f"{length} bytes at {head.offset} were not the next",
                )
            self._placed += 1
            return memoryview(self._slots[number % len(self._slots), :length])  # type: ignore[arg-type]

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
        """The next chunk as it came (sum layout, or encoded), valid until `release`. Only when it is here."""
        with self._changed:
            return self._slots[self._taken % len(self._slots), : self._sizes[self._taken]]

    def release(self, round: int, attempt: int) -> None:
        """The chunk that `take` gave is not needed any more."""
        with self._changed:
            if self._awaited == (round, attempt):
                self._taken += 1
                self._changed.notify_all()

"""Where the chunks of an average land: straight in the buffer they belong in, in order; encoded ones beside it, and
from there as differences on the consensus (docs/protocol.md, C-30); those that nobody waits for nowhere.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.consensus import Uplink
from flodl_planes.plane.encoding import average_size, compressed, largest
from flodl_planes.plane.layout import Layout
from flodl_wire.faults import Broken
from flodl_wire.frames import ChunkHead
from flodl_wire.plane_messages import CHUNK_BYTES

_EARLY_BYTES = 4 * CHUNK_BYTES  # what one receive can bring behind a Round is less
_SLOTS = 16  # encoded chunks that one receive can complete, with room to spare


class _Placed(NamedTuple):
    """Chunk `number` was given `body` to come down in; `direct`: that is where it belongs."""

    number: int
    body: memoryview
    direct: bool


class Landing:
    """Chunks of the average, as `place` for a channel's decoder; `filled` when one has come. Used by one receiving
    thread; `expect` by any.

    A decoder places the chunks of a whole receive before its owner has seen the message in front of them, so the
    first ones may come before `expect`: those wait in memory of their own until they are `filled`.
    """

    def __init__(self) -> None:
        self._trash = memoryview(bytearray(CHUNK_BYTES))
        self._awaited: tuple[int, int] | None = None
        self._next = self._done = 0
        self._early: list[tuple[ChunkHead, bytearray]] = []
        self._placed: deque[_Placed] = deque()
        self._slots = np.empty((0, 0), np.uint8)
        self._wire = "float32"
        self._uplink: Uplink | None = None

    def expect(
        self,
        round: int,
        attempt: int,
        layout: Layout,
        into: NDArray[np.uint8],
        wire: str = "float32",
        uplink: Uplink | None = None,
    ) -> None:
        """From now on only chunks of this attempt count; they go `into` a buffer of the live layout, encoded ones by
        way of `uplink`. Raises Broken for an early one that was not the next.
        """
        self._layout, self._into = layout, memoryview(into)  # type: ignore[arg-type]
        self._wire, self._uplink = wire, uplink
        size = largest(wire, layout)
        if self._slots.shape[1] < size:
            self._slots = np.empty((_SLOTS, size), np.uint8)
        self._next = self._done = 0
        self._placed.clear()
        self._awaited = (round, attempt)
        early, self._early = self._early, []
        for head, body in early:
            if (head.round, head.attempt) == self._awaited:
                self._placed.append(_Placed(self._take_number(head, len(body)), memoryview(body), direct=False))

    def place(self, head: ChunkHead, length: int) -> memoryview:
        """Raises Broken for a chunk of the awaited attempt that is not the next one, whole."""
        attempt = (head.round, head.attempt)
        if attempt != self._awaited:
            if self._awaited is not None and attempt < self._awaited:
                return self._trash[:length]
            return self._keep(head, length)
        number = self._take_number(head, length)
        chunk = self._layout.chunks[number]
        if compressed(self._wire, chunk):
            placed = _Placed(number, self._slot(number, length), direct=False)
        else:
            body = self._into[chunk.live_offset : chunk.live_offset + chunk.live_bytes]
            placed = _Placed(number, body, direct=True)
        self._placed.append(placed)
        return placed.body

    def _take_number(self, head: ChunkHead, length: int) -> int:
        """The number of the chunk with this head, which must be the next."""
        chunks, number = self._layout.chunks, self._next
        if number == len(chunks) or (head.offset, length) != (
            chunks[number].sum_offset,
            average_size(self._wire, chunks[number]),
        ):
            raise Broken(
                "bad-chunk", "cannot take a chunk of the average", f"{length} bytes at {head.offset} were not the next"
            )
        self._next += 1
        return number

    def _slot(self, number: int, length: int) -> memoryview:
        if len(self._placed) >= _SLOTS:
            return memoryview(bytearray(length))
        return memoryview(self._slots[number % _SLOTS, :length])  # type: ignore[arg-type]

    def _keep(self, head: ChunkHead, length: int) -> memoryview:
        if self._early and (self._early[0][0].round, self._early[0][0].attempt) < (head.round, head.attempt):
            self._early.clear()
        if sum(len(body) for _, body in self._early) + length > _EARLY_BYTES:
            raise Broken(
                "bad-chunk", "cannot take a chunk of the average", f"round {head.round} was never begun and it comes"
            )
        self._early.append((head, bytearray(length)))
        return memoryview(self._early[-1][1])

    def filled(self, head: ChunkHead) -> None:
        """The chunk with this head has come whole. Call it for every chunk, in the order of the frames."""
        if (head.round, head.attempt) != self._awaited or not self._placed:
            return
        number, body, direct = self._placed.popleft()
        chunk = self._layout.chunks[number]
        if compressed(self._wire, chunk) and self._uplink:
            with np.errstate(all="ignore"):  # what is not finite shows in the loss
                self._uplink.land(self._wire, number, chunk, np.frombuffer(body, np.uint8))
        elif not direct:
            self._into[chunk.live_offset : chunk.live_offset + chunk.live_bytes] = body
        self._done += 1

    def complete(self, round: int, attempt: int) -> bool:
        """Whether every chunk of that attempt has come. (Frames arrive in order: after the last chunk's frame it is
        true.)
        """
        return self._awaited == (round, attempt) and self._done == len(self._layout.chunks)

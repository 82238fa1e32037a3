"""Where the chunks of an average land: straight in the buffer they belong in, in order, or nowhere when nobody waits
for them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.layout import Layout
from flodl_wire.faults import Broken
from flodl_wire.frames import ChunkHead
from flodl_wire.plane_messages import CHUNK_BYTES

_EARLY_BYTES = 4 * CHUNK_BYTES  # what one receive can bring behind a Round is less


class Landing:
    """Chunks in the live layout, as `place` for a channel's decoder. Used by one receiving thread; `expect` by any.

    A decoder places the chunks of a whole receive before its owner has seen the message in front of them, so the
    first ones may come before `expect`: those wait in memory of their own and are put where they belong by `complete`.
    """

    def __init__(self) -> None:
        self._trash = memoryview(bytearray(CHUNK_BYTES))
        self._awaited: tuple[int, int] | None = None
        self._next = 0
        self._early: list[tuple[ChunkHead, bytearray]] = []
        self._waiting: list[tuple[memoryview, bytearray]] = []  # (where it belongs, what came early)

    def expect(self, round: int, attempt: int, layout: Layout, into: NDArray[np.uint8]) -> None:
        """From now on only chunks of this attempt count; they go `into` a buffer of the live layout. Raises Broken for
        an early one that was not the next.
        """
        self._layout, self._into, self._next = layout, memoryview(into), 0  # type: ignore[arg-type]
        self._awaited = (round, attempt)
        early, self._early, self._waiting = self._early, [], []
        for head, body in early:
            if (head.round, head.attempt) == self._awaited:
                self._waiting.append((self.place(head, len(body)), body))

    def place(self, head: ChunkHead, length: int) -> memoryview:
        """Raises Broken for a chunk of the awaited attempt that is not the next one, whole."""
        attempt = (head.round, head.attempt)
        if attempt != self._awaited:
            if self._awaited is not None and attempt < self._awaited:
                return self._trash[:length]
            return self._keep(head, length)
        chunks = self._layout.chunks
        if self._next == len(chunks) or (head.offset, length) != (
            chunks[self._next].sum_offset,
            chunks[self._next].live_bytes,
        ):
            raise Broken(
                "bad-chunk", "cannot take a chunk of the average", f"{length} bytes at {head.offset} were not the next"
            )
        chunk = chunks[self._next]
        self._next += 1
        return self._into[chunk.live_offset : chunk.live_offset + chunk.live_bytes]

    def _keep(self, head: ChunkHead, length: int) -> memoryview:
        if self._early and (self._early[0][0].round, self._early[0][0].attempt) < (head.round, head.attempt):
            self._early.clear()
        if sum(len(body) for _, body in self._early) + length > _EARLY_BYTES:
            raise Broken(
                "bad-chunk", "cannot take a chunk of the average", f"round {head.round} was never begun and it comes"
            )
        self._early.append((head, bytearray(length)))
        return memoryview(self._early[-1][1])

    def complete(self, round: int, attempt: int) -> bool:
        """Whether every chunk of that attempt has come. (Frames arrive in order: after the last chunk's frame it is
        true.)
        """
        if self._awaited != (round, attempt) or self._next != len(self._layout.chunks):
            return False
        for place, body in self._waiting:
            place[:] = body
        self._waiting = []
        return True

"""Where the chunks of an average land: straight in the buffer they belong in, in order, or nowhere when nobody waits
for them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flodl_planes.layout import Layout
from flodl_wire.faults import Broken
from flodl_wire.frames import ChunkHead
from flodl_wire.plane_messages import CHUNK_BYTES


class Landing:
    """Chunks in the live layout, as `place` for a channel's decoder. Used by one receiving thread; `expect` by any."""

    def __init__(self) -> None:
        self._trash = memoryview(bytearray(CHUNK_BYTES))
        self._awaited: tuple[int, int] | None = None
        self._next = 0

    def expect(self, round: int, attempt: int, layout: Layout, into: NDArray[np.uint8]) -> None:
        """From now on only chunks of this attempt count; they go `into` a buffer of the live layout."""
        self._layout, self._into, self._next = layout, memoryview(into), 0  # type: ignore[arg-type]
        self._awaited = (round, attempt)

    def place(self, head: ChunkHead, length: int) -> memoryview:
        """Raises Broken for a chunk of the awaited attempt that is not the next one, whole."""
        if (head.round, head.attempt) != self._awaited:
            return self._trash[:length]
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

    def complete(self, round: int, attempt: int) -> bool:
        """Whether every chunk of that attempt has come. (Frames arrive in order: after the last chunk's frame it is
        true.)
        """
        return self._awaited == (round, attempt) and self._next == len(self._layout.chunks)

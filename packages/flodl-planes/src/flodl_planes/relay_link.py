"""One relay as the hub sees it: its connection, and how the sums of its host are read and the average is given back.

`SharedLink`: the relay is on this very box, and its host's memory is mapped here. `RemoteLink`: a sealed socket and a
ring of chunks.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from flodl_planes.chunk_ring import ChunkRing
from flodl_planes.frame_socket import FrameSocket, LinkEnded
from flodl_planes.landing import Landing
from flodl_planes.layout import Chunk, Layout
from flodl_planes.reduction import carries, chunk_ready
from flodl_planes.sealed_socket import SealedSocket
from flodl_planes.segment import Segment
from flodl_planes.words import Words, control_bytes, wait_until
from flodl_wire.faults import Broken
from flodl_wire.frames import CHUNK, ChunkHead, Frame
from flodl_wire.plane_messages import Round, Shared

Bytes = NDArray[np.uint8]


class SharedLink:
    """A relay on the hub's box. `result` is the host's result segment, once `attach` has been called."""

    def __init__(self, link: FrameSocket) -> None:
        self.link = link
        self.host = ""
        self.ranks: list[int] = []
        self.result: Bytes | None = None
        self._round: Round | None = None

    def attach(self, shared: Shared, layout: Layout) -> None:
        """Map the host's memory. Raises Broken when it is not what the layout asks for."""
        sizes = [control_bytes(len(self.ranks)), layout.sum_bytes, layout.total_bytes]
        if len(self.link.fds) != 3 or (shared.total_bytes, shared.sum_bytes) != (layout.total_bytes, layout.sum_bytes):
            raise Broken(
                "bad-attach", f"cannot share memory with the relay of {self.host}", "it laid the model out differently"
            )
        control, total, result = (Segment.received(self.link.fds.popleft(), size) for size in sizes)
        self._words, self._sum, self.result = Words(control, len(self.ranks)), total.array, result.array
        for segment in (control, total, result):
            segment.close()

    def post(self, message: msgspec.Struct) -> None:
        try:
            self.link.send(message)
        except LinkEnded:
            pass  # the receiving thread says so

    def expect(self, round: Round, layout: Layout) -> None:
        if self.result is None and layout.chunks and round.weights:
            raise Broken("bad-round", "cannot begin a round", f"the relay of {self.host} has not shared its memory")
        self._round, self._ready = round, [-1] * len(self.ranks)

    def take(self, round: Round, number: int, chunk: Chunk) -> Bytes | None:
        """Chunk `number` of the host's sum, once its ranks have made it. None when the attempt was stopped."""
        if self._round is not round:
            return None
        index, word = chunk_ready(self.ranks, round, number)
        if self._ready[index] < word:

            def reached() -> bool:
                self._ready[index] = self._words.read(index)
                return self._ready[index] >= word

            while not wait_until(reached, lambda: self._round is not round):
                if self._round is not round:
                    return None
        return self._sum[chunk.sum_offset : chunk.sum_offset + chunk.sum_bytes]

    def release(self, round: Round) -> None:
        """Nothing to give back: the sum stands until the next round."""

    def stop(self) -> None:
        self._round = None

    def receive(self) -> list[Frame]:
        return self.link.receive()

    def close(self) -> None:
        self.link.close()


class RemoteLink:
    """A relay on another box."""

    result: Bytes | None = None

    def __init__(self) -> None:
        self.host = ""
        self.ranks: list[int] = []
        self.link: SealedSocket
        self._ring: ChunkRing | None = None
        self._kept = Landing()  # the average of an alone round, shipped for the checkpoint
        self._keeping = False

    def place(self, head: ChunkHead, length: int) -> memoryview:
        """Where the decoder is to put a chunk; a stranger has nowhere to put any."""
        if self._keeping:
            return self._kept.place(head, length)
        if self._ring is None:
            raise Broken("bad-frame", "cannot read from a relay", "a chunk came, and no round was ever begun")
        return self._ring.place(head, length)

    def post(self, message: msgspec.Struct) -> None:
        self.link.post(message)

    def expect(self, round: Round, layout: Layout) -> None:
        self._keeping = False
        self._ring = self._ring or ChunkRing()
        self._ring.expect(round.round, round.attempt, [c for c in layout.chunks if carries(self.ranks, round, c)])

    def expect_kept(self, round: Round, layout: Layout, into: Bytes) -> None:
        """The average of an alone round comes next, for the buffer `into`."""
        self._kept.expect(round.round, round.attempt, layout, into)
        self._keeping = True

    def kept(self, round: int, attempt: int) -> bool:
        return self._kept.complete(round, attempt)

    def take(self, round: Round, number: int, chunk: Chunk) -> Bytes | None:
        """The next chunk that the host carries: `number` must be it. None when the attempt was stopped."""
        return self._ring.take(round.round, round.attempt) if self._ring else None

    def release(self, round: Round) -> None:
        if self._ring:
            self._ring.release(round.round, round.attempt)

    def stop(self) -> None:
        if self._ring:
            self._ring.stop()
        self.link.stream(None)

    def receive(self) -> list[Frame]:
        arrived = self.link.receive()
        for frame in arrived:
            if frame.kind == CHUNK and frame.head and self._ring and not self._keeping:
                self._ring.filled(frame.head)
        return [frame for frame in arrived if frame.kind != CHUNK]

    def close(self) -> None:
        if self._ring:
            self._ring.stop()
        self.link.close()


RelayLink = SharedLink | RemoteLink
Retire = Callable[[RelayLink, str], None]

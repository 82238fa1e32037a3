"""One relay as the hub sees it: its connection, and how the sums of its host are read and the average is given back.

`SharedLink`: the relay is on this very box, and its host's memory is mapped here. `RemoteLink`: a sealed socket and a
ring of chunks.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from flodl_planes.hub.chunk_ring import ChunkRing
from flodl_planes.plane.contribution import Contribution, carries
from flodl_planes.plane.encoding import Encoder, compressed
from flodl_planes.plane.frame_socket import FrameSocket, LinkEnded
from flodl_planes.plane.kernels import Adder
from flodl_planes.plane.landing import Landing
from flodl_planes.plane.layout import Chunk, Layout
from flodl_planes.plane.sealed_socket import SealedSocket
from flodl_planes.plane.segment import Segment
from flodl_planes.plane.share import HostMemory
from flodl_planes.plane.words import Words, control_bytes
from flodl_planes.relay.process import parts
from flodl_wire.faults import Broken
from flodl_wire.frames import CHUNK, ChunkHead, Frame
from flodl_wire.plane_messages import CHUNK_BYTES, Restore, Round, Shared, State

Bytes = NDArray[np.uint8]


class SharedLink:
    """A relay on the hub's box. `result` is the host's result segment, once `attach` has been called."""

    chunks = 0  # none come by its socket

    def __init__(self, link: FrameSocket) -> None:
        self.link = link
        self.host = ""
        self.ranks: list[int] = []
        self.shared: Shared | None = None  # announced, and not yet attached
        self.result: Bytes | None = None
        self.memory: HostMemory | None = None
        self._lives: list[Bytes] = []
        self._round: Round | None = None
        self._adder = Adder()
        self._made = np.empty(CHUNK_BYTES, np.uint8)

    def attach(self, layout: Layout) -> None:
        """Map the memory that was announced. Raises Broken when it is not what was announced.

        A host with another layout stays without memory: its ranks' hellos show which tensor differs, and the
        coordinator refuses such a world before any round.
        """
        shared, self.shared = self.shared, None
        fds, count = self.link.fds, 2 + len(self.ranks)
        assert shared
        if len(fds) != count:
            what = f"cannot share memory with the relay of {self.host}"
            raise Broken("bad-attach", what, f"{len(fds)} descriptors came for {count}")
        if (shared.total_bytes, shared.sum_bytes) != (layout.total_bytes, layout.sum_bytes):
            return
        segments = [Segment.received(fds.popleft(), layout.total_bytes) for _ in range(count - 1)]
        segments.append(Segment.received(fds.popleft(), control_bytes(len(self.ranks))))
        for segment in segments:
            segment.close()
        words = Words(segments.pop(), len(self.ranks))
        self.result, *self._lives = [segment.array for segment in segments]
        self.memory = HostMemory(self.ranks, layout, words, self._lives, self.result)

    def restore(self, message: Restore, memory: int) -> None:
        """Hand out what a checkpoint holds for the ranks; `memory` is closed."""
        try:
            self.link.send(message, [memory])
        except LinkEnded:
            pass
        os.close(memory)

    def state(self, state: State) -> bytearray | memoryview:
        """A rank's state, whole."""
        if not self.link.fds:
            raise Broken("bad-message", f"cannot go on with the relay of {self.host}", "a state without its memory")
        segment = Segment.received(self.link.fds.popleft(), state.size)
        segment.close()
        return segment.buffer

    def post(self, message: msgspec.Struct) -> None:
        try:
            self.link.send(message)
        except LinkEnded:
            pass  # the receiving thread says so

    def expect(self, round: Round, layout: Layout) -> None:
        """Be ready for the sums of `round`."""
        if self.result is None:
            raise Broken("bad-round", "cannot begin a round", f"the relay of {self.host} has not shared its memory")
        self._round = round
        self._contribution = Contribution(self.ranks, self._lives, layout, round)

    def has(self, round: Round) -> bool:
        """Whether the next chunk can be taken: always, unless the attempt was stopped."""
        return self._round is round

    def take(self, round: Round, chunk: Chunk, before: Bytes | None = None) -> Bytes:
        """The host's sum of `chunk`, until the next `take`; its difference to `before`, the consensus, when that is
        given.
        """
        out = self._made[: chunk.sum_bytes]
        if before is None:
            self._contribution.sum_into(out, chunk, self._adder)
        else:
            self._contribution.difference_into(out, chunk, self._adder, before)
        return out

    def release(self, round: Round) -> None:
        """Nothing to give back."""

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
        self.chunks = 0  # received
        self._ring: ChunkRing | None = None
        self._kept = Landing()  # the average of an alone round, shipped for the checkpoint
        self._keeping = False
        self._encoder: Encoder | None = None  # from the first encoded chunk on
        self._decoded = np.empty(0, np.uint8)
        self.arrived: Callable[[], None] = lambda: None
        """Called, in the receiving thread, after each chunk."""

    def place(self, head: ChunkHead, length: int) -> memoryview:
        """Where the decoder is to put a chunk; a stranger has nowhere to put any."""
        if self._keeping:
            return self._kept.place(head, length)
        if self._ring is None:
            raise Broken("bad-frame", "cannot read from a relay", "a chunk came, and no round was ever begun")
        return self._ring.place(head, length)

    def post(self, message: msgspec.Struct) -> None:
        self.link.post(message)

    def restore(self, message: Restore, memory: int) -> None:
        self.link.post(message)
        self.link.trickle(parts(memory))

    def state(self, state: State) -> bytearray | memoryview:
        """Where a rank's state will come, piece by piece."""
        return bytearray()

    def expect(self, round: Round, layout: Layout) -> None:
        self._keeping = False
        self._ring = self._ring or ChunkRing()
        self._ring.expect(round.round, round.attempt, self._carried(round, layout), round.wire)

    def _carried(self, round: Round, layout: Layout) -> list[Chunk]:
        return [chunk for chunk in layout.chunks if carries(self.ranks, round, chunk)]

    def expect_kept(self, round: Round, layout: Layout, into: Bytes) -> None:
        """The average of an alone round comes next, for the buffer `into`."""
        self._kept.expect(round.round, round.attempt, layout, into)
        self._keeping = True

    def kept(self, round: int, attempt: int) -> bool:
        return self._kept.complete(round, attempt)

    def has(self, round: Round) -> bool:
        """Whether the next chunk that the host carries is here."""
        return self._ring is not None and self._ring.has(round.round, round.attempt)

    def take(self, round: Round, chunk: Chunk, before: Bytes | None = None) -> Bytes:
        """That chunk, valid until `release`: the sum, or the difference to the consensus where the round encodes it."""
        assert self._ring
        if not compressed(round.wire, chunk):
            return self._ring.take()
        if self._encoder is None:
            self._encoder, self._decoded = Encoder(), np.empty(CHUNK_BYTES, np.uint8)
        out = self._decoded[: chunk.sum_bytes]
        self._encoder.decode(round.wire, self._ring.take(), out.view(np.float32))
        return out

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
            if frame.head is None:
                continue
            self.chunks += 1
            if self._keeping:
                self._kept.filled(frame.head)
            elif self._ring:
                self._ring.filled(frame.head)
                self.arrived()
        return [frame for frame in arrived if frame.kind != CHUNK]

    def close(self) -> None:
        if self._ring:
            self._ring.stop()
        self.link.close()


RelayLink = SharedLink | RemoteLink

"""Frames: the plaintext of every channel between processes (docs/protocol.md, W-20 to W-26). Sans-IO, nothing but the
stdlib.

    u32 LE body length | u8 kind | body

Sealed inside records between hosts (channel.py), as they are on a Unix socket inside one. The decoder keeps its memory
in bounds: a length is checked against the limit of its kind before a byte of the body is stored. Tensor bytes can be
placed by the owner (`place`), so that a body lands where it will be used and is copied once, by the socket or the
cipher.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from flodl_wire import preface
from flodl_wire.faults import Broken

Buffer: TypeAlias = bytes | bytearray | memoryview

MESSAGE = 1  # one JSON message
CHUNK = 2  # a piece of a flat tensor buffer, behind a ChunkHead
STORE = 3  # bytes of a store connection

HEAD = struct.Struct("<IB")  # body length, kind
CHUNK_HEAD = struct.Struct("<IIQ")  # round, attempt, offset

MIB = 1 << 20
LIMITS = {MESSAGE: 16 * MIB, CHUNK: CHUNK_HEAD.size + MIB, STORE: MIB}  # bytes of a body
NAMES = {MESSAGE: "message", CHUNK: "chunk", STORE: "store"}

STRANGER_LIMIT = 64 * 1024  # a message from somebody who has proved nothing yet

# What may travel on which channel (W-24).
KINDS_OF = {
    preface.JOIN: frozenset({MESSAGE}),
    preface.RELAY: frozenset({MESSAGE, CHUNK}),
    preface.STORE: frozenset({MESSAGE, STORE}),
}


class ChunkHead(NamedTuple):
    """Which bytes a chunk frame carries: `offset` is in bytes, in the flat sum buffer of `round` and `attempt`."""

    round: int
    attempt: int
    offset: int


class Frame(NamedTuple):
    """A whole frame. `body` of a chunk is the tensor bytes alone, in what `place` gave or a buffer of its own."""

    kind: int
    body: Buffer
    head: ChunkHead | None = None


Place: TypeAlias = Callable[[ChunkHead, int], "memoryview | None"]
"""Where a chunk's bytes go: a writable memoryview of bytes of that length, or None for a buffer of the decoder's own.
"""


def frame_head(kind: int, length: int) -> bytes:
    """The five bytes before a body of `length` bytes: for `sendmsg([head, …])`. Raises Broken for a body over its
    limit.
    """
    if length > LIMITS[kind]:
        raise oversize(kind, length, LIMITS[kind], "cannot send a frame")
    return HEAD.pack(length, kind)


def chunk_head(round: int, attempt: int, offset: int, length: int) -> bytes:
    """Frame head and chunk head (21 bytes) before `length` tensor bytes."""
    return frame_head(CHUNK, CHUNK_HEAD.size + length) + CHUNK_HEAD.pack(round, attempt, offset)


def encode_frame(kind: int, *buffers: Buffer) -> bytes:
    """One frame whose body is `buffers` one after the other, as one bytes object; for messages and tests."""
    return b"".join((frame_head(kind, size_of(buffers)), *buffers))


def size_of(buffers: Collection[Buffer]) -> int:
    """Bytes in all of `buffers`, whatever the element type of a memoryview."""
    return sum(memoryview(part).nbytes for part in buffers)


def oversize(kind: int, length: int, limit: int, what: str = "cannot read a frame") -> Broken:
    return Broken("oversize", what, f"a {NAMES[kind]} frame of {length} bytes; {limit} are allowed")


class FrameDecoder:
    """Bytes in, whole frames out.

    Two ways in, freely mixed. `feed(data)` takes whatever came. `space()` is the rest of the body now being filled:
    receive into (some of) it directly, then `advance(n)`; nothing is copied.

    `kinds`: what this channel may carry. `max_message`: the limit of JSON messages now; raise it once the other side
    is trusted. Errors (Broken) are final: the stream has lost its place.
    """

    def __init__(
        self,
        kinds: Collection[int] = (MESSAGE, CHUNK, STORE),
        place: Place | None = None,
        max_message: int = LIMITS[MESSAGE],
    ) -> None:
        self.kinds = kinds
        self.place = place
        self.max_message = max_message
        self._head = bytearray()  # of the frame or, after it, of the chunk
        self._kind = 0
        self._length = 0
        self._chunk: ChunkHead | None = None
        self._body: Buffer | None = None
        self._target = memoryview(b"")
        self._filled = 0

    @property
    def at_boundary(self) -> bool:
        """True when no frame is half received: an end of the stream here is clean."""
        return not self._head and self._body is None and self._kind == 0

    def space(self) -> memoryview:
        """The rest of the body being filled; empty while the decoder reads heads."""
        return self._target[self._filled :]

    def advance(self, count: int) -> Frame | None:
        """`count` bytes of `space()` have been written; the frame when that was the last of it."""
        self._filled += count
        if self._filled < len(self._target):
            return None
        assert self._body is not None
        frame = Frame(self._kind, self._body, self._chunk)
        self._kind, self._body, self._chunk, self._target, self._filled = 0, None, None, memoryview(b""), 0
        return frame

    def feed(self, data: Buffer) -> list[Frame]:
        """The frames that `data` completes. Raises Broken: oversize, unknown kind, a chunk too short for its head."""
        frames: list[Frame] = []
        view = memoryview(data)
        while view:
            room = self.space()
            if room:
                count = min(len(room), len(view))
                room[:count] = view[:count]
                frame = self.advance(count)
            else:
                want = CHUNK_HEAD.size if self._kind == CHUNK else HEAD.size
                count = min(want - len(self._head), len(view))
                self._head += view[:count]
                frame = self._begin() if len(self._head) == want else None
            view = view[count:]
            if frame:
                frames.append(frame)
        return frames

    def _begin(self) -> Frame | None:
        """A head is whole: check it and make room for what follows. The frame itself when its body is empty."""
        if self._kind == CHUNK:
            self._chunk = ChunkHead(*CHUNK_HEAD.unpack(self._head))
            length = self._length - CHUNK_HEAD.size
            placed = self.place(self._chunk, length) if self.place else None
        else:
            self._length, kind = HEAD.unpack(self._head)
            length, placed = self._length, None
            if kind not in self.kinds:
                raise Broken(
                    "bad-frame",
                    "cannot read a frame",
                    f"kind {kind} ({NAMES.get(kind, 'unknown')}) does not belong on this channel",
                )
            limit = self.max_message if kind == MESSAGE else LIMITS[kind]
            if length > limit:
                raise oversize(kind, length, limit)
            self._kind = kind
            if kind == CHUNK:
                self._head.clear()
                if length < CHUNK_HEAD.size:
                    raise Broken(
                        "bad-frame", "cannot read a frame", f"a chunk of {length} bytes has no room for its head"
                    )
                return None
        self._head.clear()
        self._body = bytearray(length) if placed is None else placed
        self._target = memoryview(self._body)
        if len(self._target) != length:
            raise ValueError(f"place gave {len(self._target)} bytes for a chunk of {length}")
        return self.advance(0) if length == 0 else None

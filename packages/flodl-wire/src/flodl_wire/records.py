"""Records: what a sealed channel puts on the road, one direction at a time (docs/protocol.md, W-10 to W-12).

    u16 BE length | ciphertext of 1 to 65,519 bytes and its tag

Large buffers are sealed where they lie and opened where they belong: one pass over the bytes. Other threads go on
meanwhile: `cryptography` lets go of the interpreter while it works on a record (measured, both ways).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from flodl_wire import noise
from flodl_wire.faults import Broken
from flodl_wire.frames import Buffer

RECORD_PLAINTEXT = 65_519  # with the tag 65,535, the most that u16 can say
RECORD = 2 + RECORD_PLAINTEXT + noise.TAG
BATCH = 4 * RECORD  # sealed between two writes, and read at once: 256 KiB stays in the cache, and its syscall is cheap

_SMALL = 4096  # bytes of plaintext that get a buffer of their own: most messages, and all that a short link ever sends
_GATHER = 4096  # pieces below this are copied together into one record; larger ones are sealed where they lie


class Sealer:
    """Plaintext to records, in order; one thread at a time."""

    def __init__(self, state: noise.CipherState) -> None:
        self._state = state
        self.batch = BATCH
        """Bytes of a step of `records`, at most; to be changed before the first step."""
        self._batch = memoryview(b"")

    def seal_record(self, plaintext: Buffer, out: memoryview) -> int:
        """One record (1 to 65,519 bytes of plaintext) at the start of `out`; returns its length, 18 bytes more than
        the plaintext.
        """
        length = len(plaintext) + noise.TAG
        out[:2] = length.to_bytes(2, "big")
        self._state.encrypt_into(plaintext, out[2 : 2 + length])
        return 2 + length

    def records(self, *buffers: Buffer) -> Iterator[memoryview]:
        """The bytes of `buffers` as records, a few at a time; each view is overwritten by the next step. Large buffers
        are not copied.
        """
        if not self._batch:
            self._batch = memoryview(bytearray(self.batch))
        out, used = self._batch, 0
        for piece in _pieces(buffers):
            for start in range(0, len(piece), RECORD_PLAINTEXT):
                part = piece[start : start + RECORD_PLAINTEXT]
                if used + 2 + len(part) + noise.TAG > len(out):
                    yield out[:used]
                    used = 0
                used += self.seal_record(part, out[used:])
        if used:
            yield out[:used]

    def _room(self, size: int) -> memoryview:
        """Where records of `size` bytes of plaintext go. The batch costs an mmap (85 µs, measured), so it waits for the
        first message that needs it.
        """
        if not self._batch and size <= _SMALL:
            return memoryview(bytearray(size + 2 + noise.TAG))
        if not self._batch:
            self._batch = memoryview(bytearray(BATCH))
        return self._batch


def _pieces(buffers: Collection[Buffer]) -> Iterator[memoryview]:
    """`buffers` with neighbouring small ones joined."""
    small = bytearray()
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if len(view) < _GATHER:
            small += view
            continue
        if small:
            yield memoryview(small)
            small = bytearray()
        yield view
    if small:
        yield memoryview(small)


class Opener:
    """Records to plaintext, in order; one thread at a time."""

    def __init__(self, state: noise.CipherState) -> None:
        self._state = state

    def open_record(self, ciphertext: Buffer, out: memoryview) -> int:
        """Decrypt one record (without its two length bytes) into the start of `out`; returns the plaintext's length.

        Raises Broken when it was changed, repeated, reordered or sealed under another key; `out` then holds garbage,
        and the channel is dead.
        """
        length = len(ciphertext) - noise.TAG
        try:
            self._state.decrypt_into(ciphertext, out[:length])
        except noise.InvalidTag:
            raise Broken(
                "tampered",
                "cannot read from the channel",
                f"record {self._state.counter} has a wrong tag: it was changed, dropped or repeated on the road",
            ) from None
        return length

"""What stays the same while a round is being made, and changes with its commit: the consensus that differences refer
to, and what a sender still owes.

A round may be tried again without a host that was lost in the middle of it, or come to nothing. So whatever a round
writes is provisional until its commit: the average that replaces the old one chunk by chunk keeps the old chunks, and
error feedback is written beside the one that counts.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.encoding import Encoder
from flodl_planes.plane.kernels import narrow, widen
from flodl_planes.plane.layout import Chunk, Layout
from flodl_wire.plane_messages import CHUNK_BYTES

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class Consensus:
    """The last decided average, in `current` (the live layout), which the next one overwrites chunk by chunk.

    `before` gives a chunk as it was when the last round was decided, however far the present one has come. Costs a
    second model in memory, from the first use on. May be used by a sending and a receiving thread at once.
    """

    def __init__(self, layout: Layout, current: Bytes) -> None:
        self.current = current
        self._layout = layout
        self._kept = np.empty(0, np.uint8)
        self._saved = [False] * len(layout.chunks)
        self._round: int | None = None  # the one that is being made
        self._lock = threading.Lock()

    def begin(self, round: int) -> None:
        """An attempt of `round` begins. What an earlier round left half made is put back."""
        with self._lock:
            if not self._kept.size:
                self._kept = np.empty(self.current.nbytes, np.uint8)
            if self._round is not None and self._round != round:
                self._restore()
            self._round = round

    def commit(self) -> None:
        """What stands in `current` is the consensus."""
        with self._lock:
            self._round = None
            self._saved = [False] * len(self._saved)

    def before(self, number: int) -> Bytes:
        """Chunk `number` of the consensus, as the present round found it."""
        chunk = self._layout.chunks[number]
        part = slice(chunk.live_offset, chunk.live_offset + chunk.live_bytes)
        with self._lock:
            if not self._saved[number]:
                np.copyto(self._kept[part], self.current[part])
                self._saved[number] = True
        return self._kept[part]

    def move_to(self, buffer: Bytes, *, keep: bool = True) -> None:
        """From now on the consensus stands in `buffer`: the memory it stood in belongs to a host that is lost. Without
        `keep` it is whatever lies in `buffer`.
        """
        with self._lock:
            self._restore()
            self._round = None
            if keep:
                np.copyto(buffer, self.current)
            self.current = buffer

    def _restore(self) -> None:
        for number, chunk in enumerate(self._layout.chunks):
            if self._saved[number]:
                part = slice(chunk.live_offset, chunk.live_offset + chunk.live_bytes)
                np.copyto(self.current[part], self._kept[part])
        self._saved = [False] * len(self._saved)


class Draft:
    """A buffer of `nbytes` zeros with a value that counts and one that a round is writing, which `commit` makes count.

    Every round that commits must have written all of it.
    """

    def __init__(self, nbytes: int) -> None:
        self.kept: Bytes = np.zeros(nbytes, np.uint8)
        self.draft: Bytes = np.zeros(nbytes, np.uint8)

    def commit(self) -> None:
        self.kept, self.draft = self.draft, self.kept


class Feedback:
    """What a sender could not say yet: the difference between what it meant and what its encodings said, which the
    next difference has added. One thread. In the sum layout; F64 and take chunks have none.
    """

    def __init__(self, layout: Layout) -> None:
        self._owed = Draft(layout.sum_bytes)
        self._encoder = Encoder()
        self._meant = np.empty(CHUNK_BYTES, np.uint8)

    def encode(self, wire: str, chunk: Chunk, values: Floats, out: Bytes) -> Floats:
        """`values` and what is owed, encoded into `out`. Returns what everybody will take it for, in the memory of
        `values`. What is owed then, `commit` makes count.
        """
        part = slice(chunk.sum_offset, chunk.sum_offset + chunk.sum_bytes)
        owed, draft = self._owed.kept[part].view(np.float32), self._owed.draft[part].view(np.float32)
        meant = self._meant[: values.nbytes].view(np.float32)
        np.add(values, owed, out=meant)
        self._encoder.encode(wire, meant, out)
        self._encoder.decode(wire, out, values)
        np.subtract(meant, values, out=draft)
        return values

    def lost_too(self, chunk: Chunk, intended: Floats, became: Floats) -> None:
        """Behind `encode`: `intended` was meant to change the model and `became` is what did, after rounding to the
        model's own dtype. The difference is owed as well. `intended` is destroyed.
        """
        part = slice(chunk.sum_offset, chunk.sum_offset + chunk.sum_bytes)
        draft = self._owed.draft[part].view(np.float32)
        np.subtract(intended, became, out=intended)
        np.add(draft, intended, out=draft)

    def commit(self) -> None:
        """The round is decided: what it left unsaid is owed. Only when every compressed chunk was encoded in it."""
        self._owed.commit()


class Applier:
    """Scratch for one thread that lays differences on the consensus."""

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._rooms = [np.empty(CHUNK_BYTES, np.uint8) for _ in range(3)]

    def apply(self, wire: str, chunk: Chunk, before: Bytes, encoded: Bytes, out: Bytes) -> None:
        """``out = before + the difference``, live bytes. The same bits on every host."""
        difference = self._rooms[0][: chunk.sum_bytes].view(np.float32)
        self._encoder.decode(wire, encoded, difference)
        self.add(chunk, before, difference, out)

    def add(self, chunk: Chunk, before: Bytes, difference: Floats, out: Bytes) -> None:
        """The same for a difference that is there in float32 (kept)."""
        base = widen(chunk.dtype, before, self._rooms[1][: chunk.sum_bytes].view(np.float32)).view(np.float32)
        if chunk.dtype == "F32":
            np.add(base, difference, out=out.view(np.float32))
            return
        np.add(base, difference, out=base)
        narrow(chunk.dtype, base.view(np.uint8), out, self._rooms[2])


class Uplink:
    """A host's side of compressed rounds: its differences up, the new consensus down into `result`.

    `encode` belongs to the sending thread, `land` to the receiving one.
    """

    def __init__(self, layout: Layout, result: Bytes) -> None:
        self.consensus = Consensus(layout, result)
        self._feedback = Feedback(layout)
        self._applier = Applier()
        self._encoding: tuple[int, int] | None = None

    def begin(self, round: int, attempt: int, *, sends: bool) -> None:
        """An attempt begins, in which this host says something (`sends`) or only listens."""
        self.consensus.begin(round)
        self._encoding = (round, attempt) if sends else None

    def encode(self, wire: str, chunk: Chunk, difference: Floats, out: Bytes) -> None:
        """`difference` is destroyed."""
        self._feedback.encode(wire, chunk, difference, out)

    def land(self, wire: str, number: int, chunk: Chunk, encoded: Bytes) -> None:
        """A chunk of the new consensus has come."""
        out = self.consensus.current[chunk.live_offset : chunk.live_offset + chunk.live_bytes]
        self._applier.apply(wire, chunk, self.consensus.before(number), encoded, out)

    def commit(self, round: int, attempt: int) -> None:
        """That attempt is decided."""
        self.consensus.commit()
        if self._encoding == (round, attempt):
            self._feedback.commit()
        self._encoding = None

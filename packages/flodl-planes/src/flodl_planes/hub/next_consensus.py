"""From the hosts' sums of a chunk to the next consensus of it, where that is more than an average: the step of an outer
optimizer, and the encoding in which it travels to other boxes (docs/protocol.md, C-30 to C-36).

The state that lasts from round to round lives here, once in the world: the consensus that differences refer to, the
outer optimizer's memory, and what the hub's encodings still owe. Of each there is one that counts and one that the
present round writes; memory is O(model), whatever the number of hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.consensus import Applier, Consensus, Draft, Feedback
from flodl_planes.plane.encoding import compressed, encoded_bytes
from flodl_planes.plane.kernels import LIVE_DTYPES, SUM_DTYPES, add_up, narrow, widen
from flodl_planes.plane.layout import MEAN, Chunk, Layout
from flodl_planes.plane.outer import OuterOptimizer, learned, places
from flodl_wire.plane_messages import CHUNK_BYTES, Round, TensorSpec

Bytes = NDArray[np.uint8]


class NextConsensus:
    """`buffer` holds the consensus (live layout) and takes the next one. `wire`: what this run's links speak.

    `begin`, `make` for every chunk, `commit`; by one thread at a time.
    """

    def __init__(
        self, layout: Layout, tensors: Sequence[TensorSpec], wire: str, outer: OuterOptimizer | None, buffer: Bytes
    ) -> None:
        self.consensus = Consensus(layout, buffer)
        self.memory = Draft(layout.sum_bytes) if outer else None
        self._layout = layout
        self._tensors = tensors
        self._outer = outer
        self._learned = learned(tensors, layout)
        self._feedback = Feedback(layout) if wire != "float32" else None
        self._applier = Applier()
        self._encoded = np.empty(0, np.uint8)
        self._places: list[slice] = []
        self._rooms = [np.empty(CHUNK_BYTES, np.uint8) for _ in range(4)]
        if wire != "float32":
            self._lay_out_encoded(wire)

    def _lay_out_encoded(self, wire: str) -> None:
        end = 0
        for chunk in self._layout.chunks:
            size = encoded_bytes(wire, chunk.elements) if compressed(wire, chunk) else 0
            self._places.append(slice(end, end + size))
            end += -(-size // 64) * 64
        self._encoded = np.empty(end, np.uint8)

    def begin(self, round: Round, buffer: Bytes) -> None:
        """An attempt of `round` begins; it is to be made in `buffer`."""
        if buffer is not self.consensus.current:
            # A round that refers to no consensus makes one, or was given one, which lies in `buffer` already.
            self.consensus.move_to(buffer, keep=round.outer or round.wire != "float32")
        self.consensus.begin(round.round)

    def handles(self, round: Round, chunk: Chunk) -> bool:
        """Whether `chunk` is for `make`; else its sums are the average, as ever."""
        return chunk.op == MEAN and (round.outer or compressed(round.wire, chunk))

    def before(self, round: Round, number: int) -> Bytes | None:
        """What hosts' sums of chunk `number` are differences to; None where they are plain sums."""
        return self.consensus.before(number) if compressed(round.wire, self._layout.chunks[number]) else None

    def make(self, round: Round, number: int, sums: list[Bytes], out: Bytes) -> None:
        """The next consensus of chunk `number` into `out` (live bytes), from the hosts' `sums` in their order."""
        chunk = self._layout.chunks[number]
        kind = SUM_DTYPES[chunk.dtype]
        total = self._rooms[0][: chunk.sum_bytes].view(kind)
        add_up([part.view(kind) for part in sums], total)
        before = self.consensus.before(number)
        encoded = compressed(round.wire, chunk)
        if self.memory and self._outer and round.outer:
            self._step(self._outer, number, chunk, total, self.memory, None if encoded else before)
        if encoded:
            self._encode(round.wire, number, chunk, before, total, out)
        elif LIVE_DTYPES[chunk.dtype] is kind:
            np.copyto(out.view(kind), total)
        else:
            narrow(chunk.dtype, total.view(np.uint8), out, self._rooms[1])

    def _step(
        self,
        outer: OuterOptimizer,
        number: int,
        chunk: Chunk,
        total: NDArray[Any],
        memory: Draft,
        before: Bytes | None,
    ) -> None:
        """The outer step over the parameters at the beginning of the chunk; buffers behind them keep their average.
        `total` is a difference, or, where `before` is given, an average to be taken for its difference to that.
        """
        part = slice(chunk.sum_offset, chunk.sum_offset + chunk.sum_bytes)
        kept, draft = memory.kept[part].view(total.dtype), memory.draft[part].view(total.dtype)
        count = self._learned[number]
        difference = total[:count]
        base = None
        if before is not None:
            widened = widen(chunk.dtype, before, self._rooms[1][: total.nbytes].view(total.dtype))
            base = widened.view(total.dtype)[:count]
            np.subtract(difference, base, out=difference)
        room = self._rooms[2][: difference.nbytes].view(total.dtype)
        outer.step(difference, kept[:count], draft[:count], room)
        if base is not None:
            np.add(difference, base, out=difference)

    def _encode(
        self, wire: str, number: int, chunk: Chunk, before: Bytes, difference: NDArray[Any], out: Bytes
    ) -> None:
        assert self._feedback
        said = self._feedback.encode(wire, chunk, difference, self._encoded[self._places[number]])
        self._applier.add(chunk, before, said, out)
        if chunk.dtype != "F32":  # small steps would be rounded away, round after round
            rooms = [room[: chunk.sum_bytes].view(np.float32) for room in self._rooms[2:]]
            became = widen(chunk.dtype, out, rooms[0]).view(np.float32)
            np.subtract(became, widen(chunk.dtype, before, rooms[1]).view(np.float32), out=became)
            self._feedback.lost_too(chunk, said, became)

    def outer_state(self) -> dict[str, NDArray[Any]]:
        """The outer optimizer's memory by parameter, as the last decided round left it: views, which the round after
        the next overwrites. float32, F64 parameters in float64.
        """
        if not self.memory:
            return {}
        return {
            name: self.memory.kept[part].view(SUM_DTYPES[tensor.dtype]).reshape(tensor.shape)
            for name, (part, tensor) in places(self._tensors, self._layout).items()
        }

    def encoded(self, number: int) -> memoryview:
        """How chunk `number`, which was made, travels."""
        return memoryview(self._encoded[self._places[number]])  # type: ignore[arg-type]

    def commit(self, round: Round) -> None:
        """The round is decided."""
        self.consensus.commit()
        if self.memory and round.outer:
            self.memory.commit()
        if self._feedback and round.wire != "float32":
            self._feedback.commit()

"""How float chunks travel between hosts when exact float32 is too much for the link (docs/protocol.md, C-30 to C-32).

What is encoded is always a *difference*: what a host has to add to the last consensus, or what the new consensus adds
to the old. Differences are small and shrink as training settles, so 16 or 8 bits of them say more than 16 or 8 bits of
the model would; and what the encoding loses is known to the sender, who adds it to its next difference (consensus.py).

- ``bf16``: the upper half of each float32, rounded to nearest, ties to even. 2 bytes an element.
- ``int8``: blocks of 512 elements, each with one float32 scale, a 127th of its largest magnitude. 1 byte an element and
  4 a block: 0.252 of float32.

Plain numpy with ``out=``. For 100 MB of float32 on one core of the machine this was written on: 38 ms to encode int8
and to know what was lost, 21 to decode. Other blocks cost the same within a tenth (256: 42 ms, 4096: 34).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.kernels import narrow, widen
from flodl_planes.plane.layout import MEAN, Chunk, Layout
from flodl_wire.plane_messages import CHUNK_BYTES

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

BLOCK = 512  # elements that share a scale
_LEVELS = np.float32(127)
_NOTHING = np.float32(1e-30)  # a block of less is all zeros: 127 over it would be infinite
_COMPRESSED = ("F32", "BF16", "F16")  # summed in float32; F64 is somebody's wish for precision and travels as it is


def compressed(wire: str, chunk: Chunk) -> bool:
    """Whether `chunk` travels as an encoded difference in rounds of that `wire`."""
    return wire != "float32" and chunk.op == MEAN and chunk.dtype in _COMPRESSED


def encoded_bytes(wire: str, elements: int) -> int:
    """Bytes of so many elements on a compressing `wire`."""
    return 2 * elements if wire == "bf16" else elements + 4 * _blocks(elements)


def sum_size(wire: str, chunk: Chunk) -> int:
    """Bytes of a host's sum of `chunk` on its way up."""
    return encoded_bytes(wire, chunk.elements) if compressed(wire, chunk) else chunk.sum_bytes


def average_size(wire: str, chunk: Chunk) -> int:
    """Bytes of the average of `chunk` on its way down."""
    return encoded_bytes(wire, chunk.elements) if compressed(wire, chunk) else chunk.live_bytes


def largest(wire: str, layout: Layout) -> int:
    """The most bytes any compressed chunk of `layout` takes; 0 when none is compressed."""
    return max((encoded_bytes(wire, c.elements) for c in layout.chunks if compressed(wire, c)), default=0)


def _blocks(elements: int) -> int:
    return -(-elements // BLOCK)


class Encoder:
    """Scratch for one thread that encodes and decodes chunks."""

    def __init__(self) -> None:
        self._rooms = [np.empty(CHUNK_BYTES, np.uint8) for _ in range(2)]

    def encode(self, wire: str, values: Floats, out: Bytes) -> None:
        """`values` (kept) into `out`, which has ``encoded_bytes`` bytes. What is not finite arrives as NaN at the
        latest, with its whole block in int8.
        """
        if wire == "bf16":
            copy = self._rooms[0][: values.nbytes]
            np.copyto(copy.view(np.float32), values)
            narrow("BF16", copy, out, self._rooms[1])
            return
        whole = values.size // BLOCK * BLOCK
        room = self._rooms[0][: values.nbytes].view(np.float32)
        np.abs(values, out=room)
        scales = out[: 4 * _blocks(values.size)].view(np.float32)
        if whole:
            np.max(room[:whole].reshape(-1, BLOCK), axis=1, out=scales[: whole // BLOCK])
        if whole < values.size:
            scales[-1] = room[whole:].max()
        steps = _LEVELS / np.where(scales > _NOTHING, scales, np.inf)  # 0 for a block of nothing, or of NaN
        np.divide(scales, _LEVELS, out=scales)
        _by_block(values, steps, room)
        np.rint(room, out=room)
        np.copyto(out[scales.nbytes :].view(np.int8), room, casting="unsafe")

    def decode(self, wire: str, encoded: Bytes, out: Floats) -> None:
        """The values that everybody takes `encoded` for: the same bits on every machine."""
        if wire == "bf16":
            widen("BF16", encoded, out.view(np.uint8))
            return
        scales = encoded[: 4 * _blocks(out.size)].view(np.float32)
        np.copyto(out, encoded[scales.nbytes :].view(np.int8))
        _by_block(out, scales, out)


def _by_block(values: Floats, factors: Any, out: Floats) -> None:
    """``out = values · the factor of their block``."""
    whole = values.size // BLOCK * BLOCK
    if whole:
        blocks = (values[:whole].reshape(-1, BLOCK), factors[: whole // BLOCK, None])
        np.multiply(*blocks, out=out[:whole].reshape(-1, BLOCK))
    if whole < values.size:
        np.multiply(values[whole:], factors[-1], out=out[whole:])

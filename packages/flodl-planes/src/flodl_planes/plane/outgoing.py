"""Chunks as they go out: of a host's sum, each made when it is about to be sent, and of an average."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flodl_planes.plane.consensus import Uplink
from flodl_planes.plane.contribution import Contribution, carries
from flodl_planes.plane.encoding import compressed, sum_size
from flodl_planes.plane.kernels import Adder
from flodl_planes.plane.layout import Layout
from flodl_planes.plane.sealed_socket import Stream
from flodl_planes.plane.share import HostMemory
from flodl_wire.plane_messages import CHUNK_BYTES, Kept, Round


def sums(memory: HostMemory, round: Round, uplink: Uplink | None = None) -> Stream:
    """The host's sum as chunks for the hub; where the round's wire says so its encoded difference to the consensus, by
    way of `uplink`. What the host does not carry is left out.
    """
    numbered = [(n, chunk) for n, chunk in enumerate(memory.layout.chunks) if carries(memory.ranks, round, chunk)]
    contribution = Contribution(memory.ranks, memory.lives, memory.layout, round)
    adder, made, encoded = Adder(), np.empty(CHUNK_BYTES, np.uint8), np.empty(CHUNK_BYTES, np.uint8)

    def piece(n: int) -> tuple[int, memoryview]:
        number, chunk = numbered[n]
        out = made[: chunk.sum_bytes]
        with np.errstate(all="ignore"):
            if uplink and compressed(round.wire, chunk):
                contribution.difference_into(out, chunk, adder, uplink.consensus.before(number))
                sent = encoded[: sum_size(round.wire, chunk)]
                uplink.encode(round.wire, chunk, out.view(np.float32), sent)
                return chunk.sum_offset, memoryview(sent)  # type: ignore[arg-type]
            contribution.sum_into(out, chunk, adder)
        return chunk.sum_offset, memoryview(out)  # type: ignore[arg-type]

    return Stream(round.round, round.attempt, len(numbered), piece, lambda n: True)


def averages(
    layout: Layout,
    average: memoryview,
    round: Round,
    ready: Callable[[int], bool],
    last: Kept | None = None,
    encoded: Callable[[int], memoryview] | None = None,
) -> Stream:
    """An average in the live layout as chunks, with `last` behind them. `encoded(n)`: chunk n as the round's wire wants
    it.
    """

    def piece(n: int) -> tuple[int, memoryview]:
        chunk = layout.chunks[n]
        if encoded and compressed(round.wire, chunk):
            return chunk.sum_offset, encoded(n)
        return chunk.sum_offset, average[chunk.live_offset : chunk.live_offset + chunk.live_bytes]

    return Stream(round.round, round.attempt, len(layout.chunks), piece, ready, last)

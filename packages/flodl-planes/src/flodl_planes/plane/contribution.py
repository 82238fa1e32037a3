"""What the ranks of one host put into a round: their weighted sum, chunk by chunk, read where the ranks' models lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.kernels import Adder, exact_weights
from flodl_planes.plane.layout import MEAN, Chunk, Layout
from flodl_wire.plane_messages import Round

Bytes = NDArray[np.uint8]


def carries(ranks: list[int], round: Round, chunk: Chunk) -> bool:
    """Whether the host of `ranks` has something to add to `chunk` of `round`; if not, it sends nothing for it."""
    if round.given:
        return False
    return any(str(rank) in round.weights for rank in ranks) if chunk.op == MEAN else round.leader in ranks


class Contribution:
    """Of the host of `ranks`, whose models are `lives` (same order), to `round`."""

    def __init__(self, ranks: list[int], lives: list[Bytes], layout: Layout, round: Round) -> None:
        self._leader = lives[ranks.index(round.leader)] if round.leader in ranks else None
        self._weighted: dict[str, list[tuple[Bytes, Any]]] = {}
        for section in layout.sections:
            if section.op == MEAN:
                exact = exact_weights(round.weights, section.dtype)
                pairs = zip(ranks, lives, strict=True)
                self._weighted[section.dtype] = [(live, exact[rank]) for rank, live in pairs if rank in exact]

    def sources(self, chunk: Chunk) -> list[tuple[Bytes, Any]]:
        """(live bytes, weight) of each rank that carries weight, in rank order."""
        end = chunk.live_offset + chunk.live_bytes
        return [(live[chunk.live_offset : end], weight) for live, weight in self._weighted[chunk.dtype]]

    def sum_into(self, out: Bytes, chunk: Chunk, adder: Adder) -> None:
        """``out = Σ weight·rank`` in the sum dtype; bytes of the leader for a take chunk. The host must carry the
        chunk.
        """
        if chunk.op == MEAN:
            adder.weighted(chunk.dtype, self.sources(chunk), out)
        else:
            self.take_into(out, chunk)

    def difference_into(self, out: Bytes, chunk: Chunk, adder: Adder, before: Bytes) -> None:
        """``out = Σ weight·(rank − before)`` in float32, `before` the chunk's consensus in the live layout."""
        adder.weighted_difference(chunk.dtype, self.sources(chunk), before, out)

    def take_into(self, out: Bytes, chunk: Chunk) -> None:
        """The leader's bytes of a take chunk."""
        if self._leader is not None:
            np.copyto(out, self._leader[chunk.live_offset : chunk.live_offset + chunk.live_bytes])

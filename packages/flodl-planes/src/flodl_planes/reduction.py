"""One rank's share of a round: which chunks it sums, and how, so that any process of the host can take over where it
died.

The living ranks of a host divide the chunks among them. In an *alone* round (this host is the whole world) a chunk's
average is made in the owner's scratch and written from there into every rank's memory: two reads and two writes of the
model for two ranks, no third buffer, no second pass. Else the host's weighted sum goes into the `sum` segment, to be
sent; that can be done again at any time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flodl_planes.kernels import Adder, exact_weights
from flodl_planes.layout import MEAN, Chunk, Layout
from flodl_planes.words import Words, encode
from flodl_wire.plane_messages import Round

Bytes = NDArray[np.uint8]


class HostMemory:
    """What the ranks and the relay of one host share; each process maps it for itself. `lives[i]` is the model of
    `ranks[i]`.
    """

    def __init__(
        self, ranks: list[int], layout: Layout, words: Words, lives: list[Bytes], total: Bytes, result: Bytes
    ) -> None:
        self.ranks = ranks
        self.layout = layout
        self.words = words
        self.lives = lives
        self.sum = total
        self.result = result  # live layout


class Share:
    """What falls to local rank `index` (a place in ``memory.ranks``) in `round`."""

    def __init__(self, memory: HostMemory, round: Round, index: int, adder: Adder) -> None:
        self._memory = memory
        self._round = round
        self._index = index
        self._adder = adder
        self._chunks = owned(memory, round, index)
        self._hands = [memory.ranks.index(rank) for rank in hands(memory.ranks, round)]
        self._leader = memory.ranks.index(round.leader) if round.leader in memory.ranks else None
        self._weights: dict[str, list[tuple[Bytes, Any]]] = {}
        for section in memory.layout.sections:
            if section.op == MEAN:
                exact = exact_weights(round.weights, section.dtype)
                self._weights[section.dtype] = [
                    (live, exact[r]) for r, live in zip(memory.ranks, memory.lives, strict=True) if r in exact
                ]

    @property
    def finished(self) -> int:
        """The word that says that this share is done."""
        return self._word(2 * len(self._chunks))

    def run(self) -> None:
        """Do what is left of the share, from where its word stands, and leave the word at `finished`."""
        words = self._memory.words
        word = words.read(self._index)
        done = word - self._word(0) if self._word(0) <= word <= self.finished else 0
        if not done:
            words.write(self._index, self._word(0))
        step = self._apply if self._round.alone else self._add
        with np.errstate(all="ignore"):  # an overflow is the model's business: it shows in the loss
            if done % 2:
                self._spread(self._chunks[done // 2])
                words.write(self._index, self._word(done + 1))
            for number in range((done + 1) // 2, len(self._chunks)):
                step(self._chunks[number], number)
                words.write(self._index, self._word(2 * number + 2))

    def _word(self, progress: int) -> int:
        return encode(self._round.round, self._round.attempt, progress)

    def _sources(self, chunk: Chunk) -> list[tuple[Bytes, Any]]:
        end = chunk.live_offset + chunk.live_bytes
        return [(live[chunk.live_offset : end], weight) for live, weight in self._weights[chunk.dtype]]

    def _add(self, chunk: Chunk, number: int) -> None:
        out = self._memory.sum[chunk.sum_offset : chunk.sum_offset + chunk.sum_bytes]
        if chunk.op == MEAN:
            sources = self._sources(chunk)
            if sources:
                self._adder.weighted(chunk.dtype, sources, out)
        elif self._leader is not None:
            np.copyto(out, self._memory.lives[self._leader][chunk.live_offset : chunk.live_offset + chunk.live_bytes])

    def _apply(self, chunk: Chunk, number: int) -> None:
        scratch = self._memory.words.scratch[self._index][: chunk.live_bytes]
        if chunk.op == MEAN:
            self._adder.weighted_to_live(chunk.dtype, self._sources(chunk), scratch)
        elif self._leader is not None:
            np.copyto(
                scratch, self._memory.lives[self._leader][chunk.live_offset : chunk.live_offset + chunk.live_bytes]
            )
        # from here on the sources are being overwritten: only the scratch can finish this chunk
        self._memory.words.write(self._index, self._word(2 * number + 1))
        self._spread(chunk)

    def _spread(self, chunk: Chunk) -> None:
        memory, end = self._memory, chunk.live_offset + chunk.live_bytes
        average = memory.words.scratch[self._index][: chunk.live_bytes]
        for index in self._hands:
            np.copyto(memory.lives[index][chunk.live_offset : end], average)
        if self._round.keep:
            np.copyto(memory.result[chunk.live_offset : end], average)


def hands(ranks: list[int], round: Round) -> list[int]:
    """The ranks of a host that sum in `round`, in order; all of them when nobody is named."""
    return [rank for rank in ranks if rank in round.hands] if round.hands else list(ranks)


def carries(ranks: list[int], round: Round, chunk: Chunk) -> bool:
    """Whether the host of `ranks` has something to add to `chunk` of `round`; if not, it sends nothing for it."""
    return any(str(rank) in round.weights for rank in ranks) if chunk.op == MEAN else round.leader in ranks


def owned(memory: HostMemory, round: Round, index: int) -> list[Chunk]:
    """The chunks that fall to local rank `index` in `round`, in the order in which it does them."""
    among = hands(memory.ranks, round)
    rank = memory.ranks[index]
    return memory.layout.chunks[among.index(rank) :: len(among)] if round.weights and rank in among else []


def chunk_ready(ranks: list[int], round: Round, number: int) -> tuple[int, int]:
    """(local index, word) to wait for until chunk `number` of the host's sum is whole."""
    among = hands(ranks, round)
    turn, place = divmod(number, len(among))
    return ranks.index(among[place]), encode(round.round, round.attempt, 2 * turn + 2)

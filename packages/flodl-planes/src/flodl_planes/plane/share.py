"""One rank's share of a round that is made by the ranks of one host alone.

The living ranks divide the chunks among them. A chunk's average is made in the owner's scratch and written from there
into every rank's memory: two reads and two writes of the model for two ranks, no third buffer, no second pass. Any
process of the host can take over a share where its owner died.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.contribution import Contribution
from flodl_planes.plane.kernels import Adder
from flodl_planes.plane.layout import MEAN, Chunk, Layout
from flodl_planes.plane.words import Words, encode
from flodl_wire.plane_messages import Round

Bytes = NDArray[np.uint8]


class HostMemory:
    """What the ranks and the relay of one host share; each process maps it for itself. `lives[i]` is the model of
    `ranks[i]`, `result` holds an average in the live layout."""

    def __init__(self, ranks: list[int], layout: Layout, words: Words, lives: list[Bytes], result: Bytes) -> None:
        self.ranks = ranks
        self.layout = layout
        self.words = words
        self.lives = lives
        self.result = result


class Share:
    """What falls to local rank `index` (a place in ``memory.ranks``) in `round`."""

    def __init__(self, memory: HostMemory, round: Round, index: int, adder: Adder) -> None:
        self._memory = memory
        self._round = round
        self._index = index
        self._adder = adder
        self._chunks = owned(memory, round, index)
        self._hands = [memory.ranks.index(rank) for rank in hands(memory.ranks, round)]
        self._contribution = Contribution(memory.ranks, memory.lives, memory.layout, round)

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
        with np.errstate(all="ignore"):  # an overflow is the model's business: it shows in the loss
            if done % 2:
                self._spread(self._chunks[done // 2])
                words.write(self._index, self._word(done + 1))
            for number in range((done + 1) // 2, len(self._chunks)):
                self._average(self._chunks[number])
                # from here on the sources are being overwritten: only the scratch can finish this chunk
                words.write(self._index, self._word(2 * number + 1))
                self._spread(self._chunks[number])
                words.write(self._index, self._word(2 * number + 2))

    def _word(self, progress: int) -> int:
        return encode(self._round.round, self._round.attempt, progress)

    def _average(self, chunk: Chunk) -> None:
        scratch = self._memory.words.scratch[self._index][: chunk.live_bytes]
        if chunk.op == MEAN:
            self._adder.weighted_to_live(chunk.dtype, self._contribution.sources(chunk), scratch)
        else:
            self._contribution.take_into(scratch, chunk)

    def _spread(self, chunk: Chunk) -> None:
        memory, end = self._memory, chunk.live_offset + chunk.live_bytes
        average = memory.words.scratch[self._index][: chunk.live_bytes]
        for index in self._hands:
            np.copyto(memory.lives[index][chunk.live_offset : end], average)
        np.copyto(memory.result[chunk.live_offset : end], average)  # what a hub on this box saves when the run fails


def hands(ranks: list[int], round: Round) -> list[int]:
    """The ranks of a host that sum in `round`, in order; all of them when nobody is named."""
    return [rank for rank in ranks if rank in round.hands] if round.hands else list(ranks)


def owned(memory: HostMemory, round: Round, index: int) -> list[Chunk]:
    """The chunks that fall to local rank `index` in `round`, in the order in which it does them."""
    among = hands(memory.ranks, round)
    rank = memory.ranks[index]
    return memory.layout.chunks[among.index(rank) :: len(among)] if round.weights and rank in among else []


def finish_line(memory: HostMemory, round: Round) -> list[tuple[int, int]]:
    """(local index, word) of every share of `round`: when all words are there, the average stands in every rank's
    memory.
    """
    indices = [memory.ranks.index(rank) for rank in hands(memory.ranks, round)]
    return [(i, encode(round.round, round.attempt, 2 * len(owned(memory, round, i)))) for i in indices]


def crossed(memory: HostMemory, line: list[tuple[int, int]]) -> bool:
    return all(memory.words.read(index) >= word for index, word in line)


def leaders_line(memory: HostMemory, round: Round) -> list[tuple[int, int]]:
    """The same for a `direct` round that is kept: its leader, one of ours, has laid the average into `result`."""
    return [(memory.ranks.index(round.leader), encode(round.round, round.attempt, 1))]

"""The average of the last round, as far as the hub has it: in memory of its own, in a segment that it shares with this
box's relay, or not at all, where it stayed on a remote host.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from flodl_planes.hub.relay_link import RelayLink, SharedLink
from flodl_planes.plane.share import crossed, finish_line
from flodl_planes.plane.words import wait_until
from flodl_wire.plane_messages import Round

RESCUE_S = 1.0  # a round of ranks that still run is over by then; of dead ones it never will be

Bytes = NDArray[np.uint8]


class LastAverage:
    """In the live layout. Guarded by its owner's lock; `rescued` takes its time, and is asked of a copy."""

    def __init__(self) -> None:
        self.bytes: Bytes | None = None  # they stand until the next round begins
        self.round = -1
        self._own: Bytes | None = None
        self._alone: tuple[Round, RelayLink] | None = None  # whose average lies in that host's memory

    def own(self, nbytes: int) -> Bytes:
        """Memory of the hub's own, always the same."""
        if self._own is None:
            self._own = np.empty(nbytes, np.uint8)
        return self._own

    def begins(self) -> None:
        """Another round is about to be made, in whatever memory."""
        self._alone = None

    def lapses(self) -> None:
        """What stood is being written over, or is not the last one any more."""
        self.bytes = None

    def decided(self, number: int, average: Bytes | None) -> None:
        """Of round `number`, the last one: this, or one that is not here."""
        self.bytes, self.round = average, number

    def stays_at(self, round: Round, link: RelayLink) -> None:
        """The ranks of one host make this round's average among themselves."""
        self._alone = (round, link)

    def rescued(self, number: int) -> Bytes | None:
        """As `HubTransport.rescued`; it waits for RESCUE_S at most."""
        average, alone = self.bytes, self._alone
        if average is not None:
            return average if self.round == number else None
        if alone is None or alone[0].round != number:
            return None
        round, link = alone
        memory = link.memory if isinstance(link, SharedLink) else None
        if memory is None:
            return None
        line, end = finish_line(memory, round), time.monotonic() + RESCUE_S
        whole = wait_until(lambda: crossed(memory, line), lambda: time.monotonic() > end)
        return memory.result if whole else None

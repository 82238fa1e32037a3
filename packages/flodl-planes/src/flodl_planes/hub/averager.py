"""The hub's part of a round that is not made by one host alone: add the hosts' sums chunk by chunk, in the order of the
hosts, and hand the average on; where the run has an outer optimizer or an encoding, what they make of it
(next_consensus.py).

Memory is one average in the live layout (on the hub's own box the result segment of the relay beside it) and eight
chunks per remote host. Nothing is decided before the last chunk is made: until then a host that is lost costs only this
attempt.

There is no thread for it. Whoever received the chunk that completes a set adds the set up, while it is still in that
processor's cache; another receiver that comes meanwhile leaves a note and goes on receiving.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flodl_planes.hub.next_consensus import NextConsensus
from flodl_planes.hub.relay_link import RelayLink, RemoteLink, SharedLink
from flodl_planes.plane.contribution import carries
from flodl_planes.plane.kernels import Adder
from flodl_planes.plane.layout import MEAN, Chunk, Layout
from flodl_planes.plane.outgoing import averages
from flodl_planes.plane.sealed_socket import Stream
from flodl_wire.plane_messages import Commit, Round

Bytes = NDArray[np.uint8]


class Attempt:
    """One attempt of a round. `made` counts the chunks of the average that stand in `average`; `on_made` is called once
    when all do, by the thread that made the last one.
    """

    def __init__(
        self,
        round: Round,
        links: list[RelayLink],
        layout: Layout,
        average: Bytes,
        adder: Adder,
        on_made: Callable[[Attempt], None],
        upcoming: NextConsensus | None = None,
    ) -> None:
        self.round = round
        self.links = links
        self.layout = layout
        self.average = average
        self.made = 0
        self.aborted = False
        self.began = time.perf_counter()
        self._adder = adder
        self._on_made = on_made
        self._next = upcoming
        self._streams: list[tuple[RemoteLink, Stream]] = []
        self._turn, self._making = threading.Lock(), threading.Lock()
        self._busy = self._again = False
        self._copies = [
            link.result
            for link in links
            if isinstance(link, SharedLink) and link.result is not None and link.result is not average
        ]

    def begin(self) -> None:
        """Ready the links, then tell the relays; in this order, or a chunk could come before it is awaited."""
        for link in self.links:
            link.expect(self.round, self.layout)
        if self._next:
            self._next.begin(self.round, self.average)
        data = memoryview(self.average)  # type: ignore[arg-type]
        for link in self.links:
            if isinstance(link, RemoteLink):
                encoded = self._next.encoded if self._next else None
                stream = averages(self.layout, data, self.round, lambda n: self.made > n, encoded=encoded)
                self._streams.append((link, stream))
                link.arrived = self.advance
                link.link.stream(stream)
            link.post(self.round)

    def advance(self) -> None:
        """Make every chunk whose sums are all here; at once, or by the thread that is at it already."""
        with self._turn:
            self._again = True
            if self._busy:
                return
            self._busy = True
        while self._take_note():
            with np.errstate(all="ignore"):
                while self._make_next():
                    for link, _ in self._streams:
                        link.link.nudge()
        if self.made == len(self.layout.chunks) and not self.aborted:
            self._on_made(self)

    def _take_note(self) -> bool:
        with self._turn:
            noted, self._again = self._again, False
            self._busy = noted
            return noted

    def _make_next(self) -> bool:
        """One more chunk of the average; False when there is none, or a host's sum of it is not here yet."""
        with self._making:
            if self.aborted or self.made == len(self.layout.chunks) or not self._make(self.made):
                return False
            self.made += 1
            return True

    def _make(self, number: int) -> bool:
        chunk = self.layout.chunks[number]
        carrying = [link for link in self.links if carries(link.ranks, self.round, chunk)]
        if not all(link.has(self.round) for link in carrying):
            return False
        out = self._part(self.average, chunk)
        if self.round.given:
            pass  # it stands there already
        elif self._next and self._next.handles(self.round, chunk):
            before = self._next.before(self.round, number)
            self._next.make(self.round, number, [link.take(self.round, chunk, before) for link in carrying], out)
        else:
            sums = [link.take(self.round, chunk) for link in carrying]
            if chunk.op == MEAN:
                self._adder.plain_to_live(chunk.dtype, sums, out)
            else:
                np.copyto(out, sums[0])
        for link in carrying:
            link.release(self.round)
        for copy in self._copies:
            np.copyto(self._part(copy, chunk), out)
        return True

    def _part(self, buffer: Bytes, chunk: Chunk) -> Bytes:
        return buffer[chunk.live_offset : chunk.live_offset + chunk.live_bytes]

    def commit(self) -> None:
        """It is decided: tell the relays, the remote ones behind the last chunk."""
        if self._next:
            self._next.commit(self.round)
        commit = Commit(self.round.round, self.round.attempt)
        for link in self.links:
            if isinstance(link, SharedLink):
                link.post(commit)
        for remote, stream in self._streams:
            remote.link.finish(stream, commit)

    def abort(self) -> None:
        """Make no more of it (when this returns nobody is at it), and send no more."""
        self.aborted = True
        with self._making:
            pass  # the next attempt writes to the same memory
        for link in self.links:
            link.stop()

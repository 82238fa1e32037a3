"""The hub's part of a round over several hosts: add their sums chunk by chunk, in the order of the hosts, and hand the
average on.

Memory is one average in the live layout (on the hub's own box the result segment of the relay beside it) and eight
chunks per host. Nothing is decided before the last chunk is made: until then a host that is lost costs only this
attempt.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from flodl_planes.contribution import carries
from flodl_planes.kernels import Adder
from flodl_planes.layout import MEAN, Layout
from flodl_planes.relay import averages
from flodl_planes.relay_link import RelayLink, RemoteLink, SharedLink
from flodl_wire.plane_messages import Commit, Round

Bytes = NDArray[np.uint8]


class Attempt:
    """One attempt of a round. `made` counts the chunks of the average that stand in `average`."""

    def __init__(self, round: Round, links: list[RelayLink], layout: Layout, average: Bytes) -> None:
        self.round = round
        self.links = links
        self.layout = layout
        self.average = average
        self.made = 0
        self.aborted = False
        self.began = time.perf_counter()
        self._copies = [
            link.result
            for link in links
            if isinstance(link, SharedLink) and link.result is not None and link.result is not average
        ]

    def begin(self) -> None:
        """Ready the links, then tell the relays; in this order, or a chunk could come before it is awaited."""
        for link in self.links:
            link.expect(self.round, self.layout)
        commit = Commit(self.round.round, self.round.attempt)
        for link in self.links:
            if isinstance(link, RemoteLink):
                ready = lambda n: self.made > n  # noqa: E731
                link.link.stream(averages(self.layout, memoryview(self.average), self.round, ready, commit))  # type: ignore[arg-type]
            link.post(self.round)

    def run(self, adder: Adder) -> bool:
        """Make the average; True when all of it stands. False when the attempt was aborted."""
        remotes = [link.link for link in self.links if isinstance(link, RemoteLink)]
        with np.errstate(all="ignore"):
            for number, chunk in enumerate(self.layout.chunks):
                carrying = [link for link in self.links if carries(link.ranks, self.round, chunk)]
                sums: list[Bytes] = []
                for link in carrying:
                    taken = link.take(self.round, number, chunk)
                    if taken is None or self.aborted:
                        return False
                    sums.append(taken)
                out = self.average[chunk.live_offset : chunk.live_offset + chunk.live_bytes]
                if chunk.op == MEAN:
                    adder.plain_to_live(chunk.dtype, sums, out)
                else:
                    np.copyto(out, sums[0])
                for link in carrying:
                    link.release(self.round)
                for copy in self._copies:
                    np.copyto(copy[chunk.live_offset : chunk.live_offset + chunk.live_bytes], out)
                self.made = number + 1
                for remote in remotes:
                    remote.nudge()
        return not self.aborted

    def commit(self) -> None:
        """It is decided. The remote ones get their Commit behind the last chunk."""
        commit = Commit(self.round.round, self.round.attempt)
        for link in self.links:
            if isinstance(link, SharedLink):
                link.post(commit)
            else:
                link.link.nudge()

    def abort(self) -> None:
        """End `run` and the streams; the relays throw away what they have when the next attempt begins."""
        self.aborted = True
        for link in self.links:
            link.stop()

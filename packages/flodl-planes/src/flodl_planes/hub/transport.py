"""What carries the hub's words and the hosts' sums: every relay's connection, and the rounds over them.

The coordinator orders (`send_rank`, `start_round`, `drop_host`, …; none blocks for long) and hears on a queue what
happened. A relay of this very box comes in by the Unix socket, others by `adopt`, through the one port and its door.
Each relay has one receiving thread, which also adds up what it has received.
"""

from __future__ import annotations

import copy
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from flodl_planes.coordinator import transport_events as events
from flodl_planes.hub.arrivals import Arrivals
from flodl_planes.hub.averager import Attempt
from flodl_planes.hub.last_average import LastAverage
from flodl_planes.hub.recipe import Recipe
from flodl_planes.hub.relay_link import RelayLink, RemoteLink, SharedLink
from flodl_planes.hub.states import States
from flodl_planes.plane.encoding import average_size, sum_size
from flodl_planes.plane.kernels import Adder
from flodl_planes.plane.layout import Layout
from flodl_planes.plane.segment import Segment
from flodl_wire import deadlines
from flodl_wire.faults import Broken
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.plane_messages import (
    Commit,
    Expel,
    Expelling,
    FromRank,
    Kept,
    RankDown,
    RankHello,
    RankLost,
    RankUp,
    RelayBeat,
    RelayHello,
    RelayUp,
    Restore,
    Round,
    Shared,
    State,
    StatePart,
    ToRank,
)


@dataclass
class Direct:
    """A round whose data the ranks move. `made`: they have the average; `kept`: so has the hub, or it need not."""

    round: Round
    links: list[RelayLink]
    kept: bool
    made: bool = False
    began: float = field(default_factory=time.perf_counter)


class HubTransport:
    """`layout`: that of the first rank's hello. `_lock` guards who is here and which attempt runs, and orders the
    events.
    """

    def __init__(self, socket_path: str, salt: bytes, keyed: bool, out: queue.SimpleQueue[Any]) -> None:
        self.layout: Layout | None = None
        self._events = out
        self._lock = threading.RLock()
        self._relays: dict[str, RelayLink] = {}
        self._rank_links: dict[int, RelayLink] = {}
        self._gone: set[int] = set()  # ranks whose socket has closed
        self._attempt: Attempt | None = None  # the running one
        self._keeping: tuple[int, int] | None = None
        self._direct: Direct | None = None  # the round that the ranks make among themselves
        self._committed = -1
        self._last = LastAverage()
        self.states = States()
        self._recipe: Recipe | None = None  # with the first hello
        self._begun: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._adder = Adder()
        self._closed = False
        self._arrivals = Arrivals(socket_path, salt, keyed, self._hear, self._retire)
        for work in (self._begin_rounds, self._beat):
            threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True).start()

    # what the coordinator orders

    def adopt(self, sock: socket.socket, head: bytes, number: int) -> None:
        """A relay connection that the door has passed on, with the bytes it had read. It is Taken at once: one that
        dawdles here must keep nobody waiting at the door.
        """
        self._events.put(events.Taken(number))
        self._arrivals.adopt(sock, head)

    def send_rank(self, rank: int, message: RankDown) -> None:
        """Pass `message` on; nothing happens when that rank is not there any more."""
        with self._lock:
            link = self._rank_links.get(rank)
        if link:
            link.post(ToRank(rank, msgspec.Raw(encode_message(message))))

    def expel(self, rank: int) -> None:
        """End the process of a rank that stands still; its loss is reported as any other."""
        with self._lock:
            link = self._rank_links.get(rank)
        if link:
            link.post(Expel(rank))

    def restore(self, state: Segment) -> None:
        """Hand out to every rank what a checkpoint holds for them; a round marked `state` makes them wait for it."""
        with self._lock:
            links = list(self._relays.values())
        for link in links:
            link.restore(Restore(state.nbytes), os.dup(state.fd))

    def start_round(
        self, round: Round, hosts: list[str], given: NDArray[np.uint8] | None = None
    ) -> list[events.RoundDone] | None:
        """Begin `round` over `hosts`, summing in that order. None when that number is committed already, or a host is
        not here. `given`: the average of a round marked so, in the live layout.

        Answers with the round itself where it is decided at once. It does not go through the queue: whatever ends the
        run must not come between a round and the word on what its average holds.
        """
        with self._lock:
            links = [self._relays[host] for host in hosts if host in self._relays]
            if round.round <= self._committed or len(links) < len(hosts) or not links:
                return None
            if self._attempt:
                self._attempt.abort()
                self._attempt = None
            living = sorted(rank for rank in self._rank_links if rank not in self._gone)
            if round.direct and any(rank not in living for rank in round.hands):
                return None  # its RankLost stands in the queue, and its part would be missing
            round = msgspec.structs.replace(round, hands=living)
            moves = bool(round.weights) and self.layout is not None and bool(self.layout.chunks)
            self._last.begins()
            if round.alone or round.direct or not moves:
                return self._pass_on(round, links, moves)
            assert self.layout
            if not any(isinstance(link, RemoteLink) for link in links):
                round = msgspec.structs.replace(round, wire="float32")  # nothing of it crosses a network
            own = next((link.result for link in links if link.result is not None), None)
            self._last.lapses()
            average = self._last.own(self.layout.total_bytes) if own is None else own
            if given is not None:
                np.copyto(average, given)
            upcoming = self._recipe.making(average) if self._recipe else None
            self._attempt = Attempt(round, links, self.layout, average, self._adder, self._made, upcoming)
            self._attempt.begin()
            self._begun.put(self._attempt)
            return []

    def average(self) -> NDArray[np.uint8] | None:
        """The last average that was kept, in the live layout; None when there is none. It stands until the next round
        begins.
        """
        with self._lock:
            return self._last.bytes

    @property
    def moved(self) -> int:
        """Chunks: what has come from other boxes, and what of an average is made. It changes while a round gets on."""
        with self._lock:
            made = self._attempt.made if self._attempt else 0
            return made + sum(link.chunks for link in self._relays.values())

    def outer_state(self) -> dict[str, NDArray[Any]]:
        """The outer optimizer's memory by parameter name, as the last decided round left it (zeros before there was
        one), valid until the next is decided. Empty when this run has none.
        """
        with self._lock:
            if self._recipe is None or self._recipe.outer is None:
                return {}
            made = self._recipe.making(self._last.own(self._recipe.layout.total_bytes))
            return made.outer_state() if made else {}

    def restore_outer(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with what `outer_state` gave in an earlier run; before the first round that uses it. Parameters that
        `state` does not know begin with nothing.
        """
        for name, memory in self.outer_state().items():
            if name in state:
                np.copyto(memory, state[name].reshape(memory.shape))

    def rescued(self, number: int) -> NDArray[np.uint8] | None:
        """The average of round `number`, the last one decided, for a run that fails: also one that the ranks of this
        box have made among themselves. None when it is not in reach, or not whole, or when a later one has taken its
        place.
        """
        with self._lock:
            last = copy.copy(self._last)
        return last.rescued(number)

    def drop_host(self, host: str, why: str) -> None:
        """End the connection to that host's relay; a RelayLost event follows."""
        with self._lock:
            link = self._relays.get(host)
        if link:
            self._retire(link, why)

    def close(self) -> None:
        """End everything."""
        self._closed = True
        self._arrivals.close()
        with self._lock:
            links = list(self._relays.values())
            if self._attempt:
                self._attempt.abort()
        for link in links:
            link.close()
        self._begun.put(None)

    # rounds

    def _pass_on(self, round: Round, links: list[RelayLink], moves: bool) -> list[events.RoundDone]:
        """A round without sums for the hub: one host is the world, or nobody has weight. Holding the lock."""
        if moves and round.keep:
            assert self.layout
            self._last.lapses()
            self._keeping = (round.round, round.attempt)
            for link in links:
                if isinstance(link, RemoteLink):
                    link.expect_kept(round, self.layout, self._last.own(self.layout.total_bytes))
        for link in links:
            link.post(round)
        if moves and round.alone and not round.direct:
            self._last.stays_at(round, links[0])
        if moves and round.direct:
            self._direct = Direct(round, links, kept=not round.keep)
        elif not (moves and round.keep):
            average = None if moves else self._last.bytes  # where nobody moved an average that stood stands
            if self.layout is not None and not self.layout.chunks:
                average = np.empty(0, np.uint8)
            self._last.decided(round.round, average)
            self._committed = round.round
            return [events.RoundDone(round.round, round.attempt)]
        return []

    def _kept(self, link: RelayLink, kept: Kept) -> None:
        with self._lock:
            key = (kept.round, kept.attempt)
            if self._keeping != key:
                return
            if isinstance(link, RemoteLink) and not link.kept(*key):
                raise Broken(
                    "bad-kept", f"cannot go on with the relay of {link.host}", "not all of the average had come"
                )
            assert self.layout
            own = isinstance(link, RemoteLink)
            self._last.decided(kept.round, self._last.own(self.layout.total_bytes) if own else link.result)
            self._keeping = None
            if self._direct:
                self._direct.kept = True
                self._commit_direct()
                return
            self._committed = kept.round
            self._events.put(events.RoundDone(*key))

    def commit(self, round: int, attempt: int) -> None:
        """Every rank of a direct round has its average. Nothing happens when the round has been interrupted."""
        with self._lock:
            if self._direct and (self._direct.round.round, self._direct.round.attempt) == (round, attempt):
                self._direct.made = True
                self._commit_direct()

    def _commit_direct(self) -> None:
        direct = self._direct
        if direct is None or not (direct.kept and direct.made):
            return
        number, attempt = direct.round.round, direct.round.attempt
        self._direct, self._committed = None, number
        for link in direct.links:
            link.post(Commit(number, attempt))
        ms = (time.perf_counter() - direct.began) * 1000
        self._events.put(events.RoundDone(number, attempt, ms))

    def _interrupt_direct(self, ranks: list[int]) -> int | None:
        """The direct round that `ranks` take with them, if it is not committed."""
        direct = self._direct
        if direct is None or not any(rank in direct.round.hands for rank in ranks):
            return None
        self._direct = self._keeping = None
        return direct.round.round

    def _begin_rounds(self) -> None:
        """So that `start_round` need not wait for sums that are here already (all of them, when every host is)."""
        while True:
            attempt = self._begun.get()
            if attempt is None:
                return
            attempt.advance()

    def _made(self, attempt: Attempt) -> None:
        """The whole average stands: unless a host was lost in this very moment, the round is decided."""
        with self._lock:
            if attempt is not self._attempt:
                return
            self._attempt = None
            self._committed = attempt.round.round
            self._last.decided(attempt.round.round, attempt.average)
            ms = (time.perf_counter() - attempt.began) * 1000
            wire = attempt.round.wire
            moved = sum(sum_size(wire, chunk) + average_size(wire, chunk) for chunk in attempt.layout.chunks)
            attempt.commit()
            self._events.put(events.RoundDone(attempt.round.round, attempt.round.attempt, ms, moved))

    # connections

    def _hear(self, link: RelayLink, message: RelayUp) -> None:
        if not link.host and not isinstance(message, (RelayHello, RelayBeat)):
            raise Broken("bad-message", "cannot take a relay's connection", "it did not start with its hello")
        if isinstance(message, FromRank):
            self._own_rank(link, message.rank)
            body: RankUp = decode_message(message.body, RankUp, f"rank {message.rank}")
            if isinstance(body, RankHello):
                with self._lock:  # relays have a thread each, and two may hear a first hello at once
                    if self.layout is None:
                        self._recipe = Recipe(body)
                        self.layout = self._recipe.layout
                self._attach(link)
            self._events.put(events.FromRank(message.rank, body))
            if isinstance(body, State) and self.states.announced(message.rank, body, link.state(body)):
                self._events.put(events.StateWhole(message.rank, body.round))
        elif isinstance(message, StatePart):
            self._own_rank(link, message.rank)
            whole = self.states.part(message.rank, message.data)
            if whole is not None:
                self._events.put(events.StateWhole(message.rank, whole))
        elif isinstance(message, RelayHello):
            self._join(link, message)
        elif isinstance(message, Expelling):
            self._own_rank(link, message.rank)
            self._events.put(events.RankEnding(message.rank))
        elif isinstance(message, RankLost):
            self._own_rank(link, message.rank)
            with self._lock:
                self._gone.add(message.rank)
                interrupted = self._interrupt_direct([message.rank])
                self._events.put(events.RankLost(message.rank, message.said_goodbye, interrupted))
        elif isinstance(message, Kept):
            self._kept(link, message)
        elif isinstance(message, Shared):
            if not isinstance(link, SharedLink):
                raise Broken(
                    "bad-message",
                    f"cannot go on with the relay of {link.host}",
                    "it shares memory over a network",
                )
            link.shared = message
            self._attach(link)

    def _attach(self, link: RelayLink) -> None:
        """A relay announces its memory just before its last rank's hello. Another relay's thread may set the layout
        between the two: so at either.
        """
        if isinstance(link, SharedLink) and link.shared and self.layout:
            link.attach(self.layout)

    def _own_rank(self, link: RelayLink, rank: int) -> None:
        if rank not in link.ranks:
            raise Broken(
                "bad-message",
                f"cannot go on with the relay of {link.host}",
                f"it speaks for rank {rank}, which is not its own",
            )

    def _join(self, link: RelayLink, hello: RelayHello) -> None:
        with self._lock:
            taken = [rank for rank in hello.ranks if rank in self._rank_links]
            if link.host or hello.host in self._relays or taken or not hello.ranks:
                raise Broken(
                    "twice",
                    f"cannot take a relay of {hello.host}",
                    f"rank {taken[0]} is announced already"
                    if taken
                    else "that host has one already, or it brings no rank",
                )
            link.host, link.ranks = hello.host, sorted(hello.ranks)
            self._relays[hello.host] = link
            self._rank_links.update(dict.fromkeys(link.ranks, link))
            self._events.put(events.RelayJoined(hello.host, link.ranks))

    def _retire(self, link: RelayLink, why: str) -> None:
        """The connection is over: once per relay that had joined, its host is lost."""
        with self._lock:
            if self._relays.get(link.host) is link:
                del self._relays[link.host]
                for rank in link.ranks:
                    self._gone.add(rank)
                    self._rank_links.pop(rank, None)
                interrupted = self._interrupt_direct(link.ranks)
                if self._attempt and link in self._attempt.links:
                    self._attempt.abort()
                    interrupted, self._attempt = self._attempt.round.round, None
                self._events.put(events.RelayLost(link.host, why, interrupted))
        link.close()

    def _beat(self) -> None:
        """To relays of this box; sealed sockets beat by themselves."""
        while not self._closed:
            time.sleep(deadlines.beat())
            with self._lock:
                links = [link for link in self._relays.values() if isinstance(link, SharedLink)]
            for link in links:
                link.post(RelayBeat())

"""Worlds in small: a hub transport, relays and ranks, on real Unix sockets and loopback TCP."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from flodl_planes.coordinator.transport_events import FromRank, RelayJoined
from flodl_planes.hub.transport import HubTransport
from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.rank_plane import RankPlane
from flodl_planes.plane.sealed_socket import SealedSocket, dial
from flodl_planes.plane.segment import Segment
from flodl_planes.relay.process import Relay
from flodl_wire.faults import Fault
from flodl_wire.plane_messages import Deposit, Leaving, RankHello, RelayHello, Round, TensorSpec, Terms
from flodl_wire.specs import RelaySpec

SALT = bytes(range(16))
TERMS = Terms("cpu_sync", 1, 1, 1, 0, False)
WAIT = 30.0


class Rank:
    """One rank as threads: `values` are its model's bytes."""

    def __init__(self, number: int, tensors: list[TensorSpec], path: str, terms: Terms = TERMS) -> None:
        layout = lay_out(tensors)
        self.number = number
        self.layout = layout
        self.live = Segment.create("live", layout.total_bytes)
        self._hello = RankHello(number, terms, tensors, layout.sections, "sig")
        self._path = path
        self.plane: RankPlane

    @property
    def floats(self) -> Any:
        return self.live.array.view(np.float32)

    def connect(self) -> None:
        self.plane = RankPlane.connect(self._path, self._hello, self.live)

    def take_part(self) -> Future[Round]:
        """Receive the round and reduce, in a thread."""
        done: Future[Round] = Future()

        def work() -> None:
            try:
                message = self.plane.receive()
                assert isinstance(message, Round), message
                done.set_result(self.plane.reduce(message).round)
            except BaseException as err:
                done.set_exception(err)

        threading.Thread(target=work, daemon=True).start()
        return done


class World:
    """`hosts[name]` = its ranks; hosts in `beside` sit on the hub's own box. `outcomes[name]`: how a relay ended."""

    def __init__(
        self,
        folder: Path,
        tensors: list[TensorSpec],
        hosts: dict[str, list[int]],
        beside: set[str],
        terms: Terms = TERMS,
    ) -> None:
        self.terms = terms
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.folder, self.hosts, self.beside, self.tensors = folder, hosts, beside, tensors
        self.hub_socket = str(folder / "hub.sock")
        self.transport = HubTransport(self.hub_socket, SALT, True, self.events)
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]
        self.outcomes: dict[str, Future[int]] = {}
        self.relays: dict[str, Relay] = {}
        self.ranks: dict[int, Rank] = {}
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _pass_on(self) -> None:
        for number in range(1000):
            try:
                sock, _ = self.door.accept()
            except OSError:
                return
            self.transport.adopt(sock, b"", number)

    def spec(self, host: str) -> RelaySpec:
        return RelaySpec(
            host=host,
            controller_host="127.0.0.1",
            controller_port=self.port,
            ranks=self.hosts[host],
            world_size=sum(map(len, self.hosts.values())),
            salt_hex=SALT.hex(),
            run="test",
            hub_socket=self.hub_socket if host in self.beside else "",
            relay_socket=self.relay_socket(host),
        )

    def relay_socket(self, host: str) -> str:
        return str(self.folder / f"{host}.sock")

    def start_relay(self, host: str) -> None:
        outcome: Future[int] = Future()
        relay = Relay(self.spec(host))

        def work() -> None:
            try:
                outcome.set_result(relay.run())
            except Fault as fault:
                outcome.set_exception(fault)

        self.relays[host], self.outcomes[host] = relay, outcome
        threading.Thread(target=work, daemon=True).start()

    def start(self, *, relays: bool = True) -> World:
        """Everybody in, with rank r holding r + 1 in every float; the hellos are in when this returns."""
        for host, numbers in self.hosts.items():
            if relays:
                self.start_relay(host)
            for number in numbers:
                rank = self.ranks[number] = Rank(number, self.tensors, self.relay_socket(host), self.terms)
                if rank.live.nbytes % 4 == 0:
                    rank.floats[:] = number + 1
                rank.connect()
        self.await_hellos(sum(map(len, self.hosts.values())))
        return self

    def false_relay(self, host: str) -> SealedSocket:
        """A relay of `host` that takes part in nothing; it is in when this returns, and nobody else will be for it."""
        link = dial("127.0.0.1", self.port, SALT, lambda head, length: memoryview(bytearray(length)))
        link.post(RelayHello(host, self.hosts.pop(host)))
        while self.next(RelayJoined).host != host:
            pass
        return link

    def await_hellos(self, count: int) -> None:
        seen = 0
        while seen < count:
            event = self.events.get(timeout=WAIT)
            if isinstance(event, FromRank):
                assert isinstance(event.message, RankHello)
                seen += 1

    def await_deposits(self, count: int) -> None:
        while count:
            event = self.next(FromRank)
            count -= isinstance(event.message, Deposit)

    def next(self, kind: type) -> Any:
        """The next event of that kind; others are dropped."""
        while True:
            event = self.events.get(timeout=WAIT)
            if isinstance(event, kind):
                return event

    def order(self, number: int, weights: dict[str, float], *, hosts: list[str] | None = None, **more: Any) -> bool:
        names = list(self.hosts) if hosts is None else hosts
        more.setdefault("alone", len(names) == 1)
        more.setdefault("leader", int(next(iter(weights), 0)))
        return self.begin(Round(number, weights, **more), names)

    def begin(self, round: Round, hosts: list[str], given: Any = None) -> bool:
        """False when it cannot begin. What is decided at once stands among the events, as the rest does."""
        decided = self.transport.start_round(round, hosts, given)
        for each in decided or []:
            self.events.put(each)
        return decided is not None

    def round(self, number: int, weights: dict[str, float], **more: Any) -> None:
        """A whole round of everybody."""
        for rank in self.ranks.values():
            rank.plane.send(Deposit(number, 1, 1))
        working = [rank.take_part() for rank in self.ranks.values()]
        assert self.order(number, weights, **more)
        for done in working:
            done.result(WAIT)

    def leave(self) -> dict[str, int]:
        """Everybody says goodbye; the relays' exit codes."""
        for rank in self.ranks.values():
            rank.plane.send(Leaving())
            rank.plane.close()
        return {host: outcome.result(WAIT) for host, outcome in self.outcomes.items()}

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.door.shutdown(socket.SHUT_RDWR)  # or the thread that accepts there would keep this world for ever
        self.door.close()
        for rank in self.ranks.values():
            if hasattr(rank, "plane"):
                rank.plane.close()
        self.transport.close()


@pytest.fixture
def make_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """``make_world({"a": [0, 1], "b": [2]}, {"a"}, elements=1000)`` or with ``tensors=``, and fields of Terms; closed
    after the test."""
    worlds = []

    def make(
        hosts: dict[str, list[int]],
        beside: set[str] | None = None,
        elements: int = 1000,
        tensors: list[TensorSpec] | None = None,
        **terms: Any,
    ) -> World:
        folder = tmp_path_factory.mktemp("w")
        specs = [TensorSpec("w", [elements], "F32", "param")] if tensors is None else tensors
        said = msgspec.structs.replace(TERMS, **terms)
        world = World(folder, specs, hosts, set(hosts) if beside is None else beside, said)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.close()

"""The one port. It reads what a connection says first and routes it: join links and HTTP stay here, relay and store
channels go to the hub.

Strangers cost little and starve nobody: at most 64 KiB and `deadlines.PREFACE` seconds each, a cap on how many wait
at once (over it the longest-waiting stranger of the busiest address goes), a bounded number of accepts per turn of
the loop, no name is ever looked up, and what is turned away is worth a line only now and then.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from flodl_window.http_door import HttpConnection, Pages, is_request_start
from flodl_window.join_link import JoinLink, LinkOwner
from flodl_wire import preface
from flodl_wire.faults import Fault, Refused
from flodl_wire.resending import resend_soon

# A reader of state.json behind a crowd of a thousand waits for their accepts (cheap), not for their handshakes: those
# get so many seconds in each turn of the loop (on a busy box fewer fit in), and only one while a crowd still comes in.
ACCEPTS_PER_TURN = 64
HANDSHAKES_S = 0.002
LISTEN_BACKLOG = 4096  # a crowd waits in the kernel; the system's own limit may be lower
STRANGERS = 1024  # connections that have proved nothing yet
STRANGER_BYTES = 64 * 1024
COMPLAINTS_EVERY = 5.0  # seconds between two lines about strangers
_WORTH_LISTING = ("wrong-key", "no-key", "other-version")


class HandOver(Protocol):
    """Where relay and store connections go: the pair with the hub."""

    def pass_on(self, sock: socket.socket, head: bytes, address: str) -> bool:
        """Hand a copy of the connection over; False when the hub has too many in hand."""
        ...


@dataclass
class DoorLimits:
    preface_s: float
    http_s: float
    strangers: int = STRANGERS


class Door:
    """Serves the listening sockets `socks`. Call `open` inside a running loop, `close` at the end."""

    def __init__(
        self,
        socks: list[socket.socket],
        *,
        owner: LinkOwner,
        pages: Pages,
        hub: HandOver,
        salt_for: Callable[[bool], bytes | None],
        limits: DoorLimits,
        complain: Callable[[str], None],
        refused: Callable[[str, Fault], None] = lambda address, fault: None,
    ) -> None:
        self._refused = refused
        self.owner, self.pages, self.hub, self.salt_for, self.limits = owner, pages, hub, salt_for, limits
        self._socks = socks
        self._complain = complain
        self._servers: list[asyncio.Server] = []
        self._strangers: dict[Stranger, None] = {}  # in order of arrival
        self._numbers = 0
        self._muted_until = 0.0
        self._muted = 0
        self._arrived = 0  # since handshakes were last answered
        self._knocking: deque[Callable[[], None]] = deque()  # answers to strangers, letters to be sealed

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._socks:
            # asyncio accepts as many connections per turn as its backlog says; the kernel's queue is set separately.
            server = await loop.create_server(lambda: Stranger(self), sock=sock, backlog=ACCEPTS_PER_TURN)
            sock.listen(LISTEN_BACKLOG)
            self._servers.append(server)

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for stranger in list(self._strangers):
            stranger.drop()

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def queue(self, answer: Callable[[], None]) -> None:
        """Have `answer` called soon and in its turn, few of them in each turn of the loop: they cost processor time."""
        if not self._knocking:
            asyncio.get_running_loop().call_soon(self._answer_some)
        self._knocking.append(answer)

    def _answer_some(self) -> None:
        loop = asyncio.get_running_loop()
        crowded, self._arrived = self._arrived >= ACCEPTS_PER_TURN // 2, 0
        until = loop.time() + (0.0 if crowded else HANDSHAKES_S)
        while self._knocking:
            self._knocking.popleft()()
            if loop.time() >= until:
                break
        if self._knocking:
            loop.call_soon(self._answer_some)

    def enter(self, stranger: Stranger) -> None:
        """One more that has proved nothing; over the cap the oldest of the busiest address goes."""
        self._arrived += 1
        if len(self._strangers) >= self.limits.strangers:
            busiest = Counter(waiting.address for waiting in self._strangers).most_common(1)[0][0]
            oldest = next(waiting for waiting in self._strangers if waiting.address == busiest)
            self._strangers.pop(oldest)
            oldest.drop()
            self.turned_away(oldest.address, "too many connections wait")
        self._strangers[stranger] = None

    def leave(self, stranger: Stranger) -> None:
        self._strangers.pop(stranger, None)

    def turned_away(self, address: str, why: str, fault: Fault | None = None) -> None:
        """A line about a stranger, at most one in `COMPLAINTS_EVERY` seconds; one that spoke the protocol and may be a
        worker with a wrong token is worth remembering too.
        """
        if fault is not None and fault.code in _WORTH_LISTING:
            self._refused(address, fault)
        now = asyncio.get_running_loop().time()
        if now < self._muted_until:
            self._muted += 1
            return
        more = f" (and {self._muted} more)" if self._muted else ""
        self._muted, self._muted_until = 0, now + COMPLAINTS_EVERY
        self._complain(f"turned away a connection from {address}: {why}{more}")


class Stranger(asyncio.Protocol):
    """A connection until it is known what it wants; then another protocol takes its transport over."""

    def __init__(self, door: Door) -> None:
        self.address = "?"
        self._door = door
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next: JoinLink | HttpConnection | None = None
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = numeric(transport.get_extra_info("peername"))
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            resend_soon(sock)
        self._door.enter(self)
        self._timer = asyncio.get_running_loop().call_later(self._door.limits.preface_s, self._time_out)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if is_request_start(self._head[:16]):
            self._restart_timer(self._door.limits.http_s)
            self._become(HttpConnection(self._door.pages, self.address, self._settled))
        elif not preface.is_start(self._head):
            self._turn_away("it speaks neither flodl nor HTTP")
        elif len(self._head) >= preface.LENGTH:
            self._route()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settled()

    def drop(self) -> None:
        """Make room: end it now."""
        self._gone = True
        if self._transport is not None:
            self._transport.abort()

    def _route(self) -> None:
        try:
            kind = preface.parse(self._head).kind
        except Refused as refused:
            if refused.code == "not-flodl":
                self._turn_away(refused.why)
                return
            kind = (
                preface.JOIN
            )  # the channel itself answers other versions, kinds and flags in the protocol's own words
        if kind == preface.JOIN:
            door = self._door
            link = JoinLink(
                door.next_number(),
                self.address,
                door.salt_for,
                door.owner,
                door.queue,
                self._settled,
                self._link_turned_away,
            )
            assert self._transport is not None
            self._transport.pause_reading()
            self._transport.set_protocol(link)
            door.queue(lambda: self._become(link))
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        transport = self._transport
        assert transport is not None
        transport.pause_reading()
        if len(self._head) > STRANGER_BYTES:
            self._turn_away("it sent more than a handshake before it was answered")
            return
        # The hub gets a descriptor of its own; closing ours without a shutdown leaves the connection as it is.
        if not self._door.hub.pass_on(transport.get_extra_info("socket"), self._head, self.address):
            transport.write(preface.encode_refusal(preface.REASON_BUSY))
            self._turn_away("the coordinator has too many connections in hand")
            return
        self._settled()
        transport.abort()

    def _become(self, protocol: JoinLink | HttpConnection) -> None:
        assert self._transport is not None
        if self._transport.is_closing():  # it left while it waited for its turn
            return
        self._next = protocol
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        head, self._head = self._head, b""
        take = protocol.take if isinstance(protocol, JoinLink) else protocol.data_received
        take(head)
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _settled(self) -> None:
        """It is known, answered or gone: a stranger no longer."""
        self._door.leave(self)
        if self._timer is not None:
            self._timer.cancel()

    def _link_turned_away(self, why: str, fault: Fault | None) -> None:
        self._settled()
        if why and not self._gone:
            self._door.turned_away(self.address, why, fault)

    def _turn_away(self, why: str) -> None:
        self._settled()
        assert self._transport is not None
        self._transport.close()
        self._door.turned_away(self.address, why)

    def _restart_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        if isinstance(self._next, HttpConnection):
            self._next.time_out()
        elif self._next is not None:
            self._next.drop("no hello in time")
        else:
            self._turn_away("it said nothing in time")


def numeric(peername: object) -> str:
    """The address of a socket's other side as digits, IPv4 inside IPv6 as IPv4; never a name."""
    if isinstance(peername, tuple) and peername and isinstance(peername[0], str):
        return peername[0].removeprefix("::ffff:") if "." in peername[0] else peername[0]
    return "?"

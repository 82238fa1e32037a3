"""One join connection behind the door: a sealed channel in an asyncio protocol's clothes.

It stays a stranger until it has proved the key and said hello; until then it may cost 64 KiB and the door's patience.
Afterwards it carries messages both ways for as long as the host takes part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from flodl_wire import frames, preface
from flodl_wire.channel import Responder
from flodl_wire.faults import Broken, Fault
from flodl_wire.join_messages import Hello, JoinUp
from flodl_wire.messages import decode_message, encode_message

MAX_UNREAD = 32 * 1024 * 1024  # bytes queued for one link; a rehearsal may ask for a few MiB at once


class LinkOwner(Protocol):
    """Whoever serves join links: the launcher."""

    def link_hello(self, link: JoinLink, hello: Hello) -> None: ...
    def link_message(self, link: JoinLink, message: JoinUp) -> None: ...
    def link_closed(self, link: JoinLink, why: str) -> None: ...


class JoinLink(asyncio.Protocol):
    """`number` names the link everywhere else; `address` is numeric, as the door saw it.

    What a stranger says is looked at when `soon` calls back: a crowd must not take a whole turn of the loop. `known` is
    called when it has proved the key and said hello, `turned_away` when it is gone without that, with the reason and,
    where it spoke the protocol, the fault.
    """

    def __init__(
        self,
        number: int,
        address: str,
        salt_for: Callable[[bool], bytes | None],
        owner: LinkOwner,
        soon: Callable[[Callable[[], None]], None],
        known: Callable[[], None],
        turned_away: Callable[[str, Fault | None], None],
    ) -> None:
        self.number = number
        self.address = address
        self.host = ""
        self.closed = False
        self._why = ""
        self._fault: Fault | None = None
        self.keyed = False
        self._salt_for = salt_for
        self._channel = Responder(self._salt, kinds=(preface.JOIN,))
        self._owner = owner
        self._soon = soon
        self._known = known
        self._turned_away = turned_away
        self._transport: asyncio.Transport | None = None
        self._put_off: list[msgspec.Struct] = []

    def _salt(self, keyed: bool) -> bytes | None:
        self.keyed = keyed
        return self._salt_for(keyed)

    @property
    def _done(self) -> bool:
        return self.closed

    @property
    def admitted(self) -> bool:
        """True once it has said hello; the owner hears about its end from then on."""
        return bool(self.host)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self.admitted:
            self.take(data)
        elif not self.closed:
            assert self._transport is not None
            self._transport.pause_reading()
            self._soon(lambda: self._take_and_read_on(data))

    def _take_and_read_on(self, data: bytes) -> None:
        self.take(data)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def take(self, data: bytes) -> None:
        """Look at `data` now."""
        if self.closed:
            return
        try:
            arrived = self._channel.receive_data(data)
        except Fault as fault:
            self._write()  # it may be the refusal
            self._fault = fault
            self.drop(str(fault))
            return
        self._write()
        for frame in arrived:
            if self._done:
                return
            try:
                self._heard(decode_message(frame.body, JoinUp, self.host or self.address))
            except Fault as fault:
                self.drop(str(fault))

    def _heard(self, message: JoinUp) -> None:
        if self.admitted:
            if isinstance(message, Hello):
                raise Broken("second-hello", f"cannot follow {self.host}", "it said hello twice")
            self._owner.link_message(self, message)
        elif isinstance(message, Hello):
            self.host = message.host or "?"
            self._channel.max_message = frames.LIMITS[frames.MESSAGE]
            self._known()
            self._owner.link_hello(self, message)
        else:
            raise Broken("no-hello", f"cannot follow {self.address}", "it spoke before it said hello")

    def eof_received(self) -> bool:
        """The agent half-closes after its goodbye; we close the rest."""
        why = ""
        try:
            self._channel.receive_eof()
        except Fault as fault:
            why = fault.why or str(fault)
        self.drop(why)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        why = self._why or (str(exc) if exc else "")
        if self.admitted:
            self._owner.link_closed(self, why)
        else:
            self._turned_away(why, self._fault)

    def send(self, message: msgspec.Struct) -> None:
        """Queue and write one message; nothing happens on a closed link. A link that does not read is dropped."""
        if self.closed:
            return
        if self._put_off:
            self._put_off.append(message)  # nothing overtakes
            return
        self._channel.send(frames.MESSAGE, encode_message(message))
        self._write()
        if self._transport is not None and self._transport.get_write_buffer_size() > MAX_UNREAD:
            self._why = self._why or "it does not read what it is sent"
            self.shut(lost=True)

    def put_off(self, message: msgspec.Struct) -> None:
        """Have `message`, and what is sent behind it, wait for `send_put_off`: a thousand letters are not for one turn
        of the loop.
        """
        self._put_off.append(message)

    def send_put_off(self) -> None:
        put_off, self._put_off = self._put_off, []
        for message in put_off:
            self.send(message)

    def drop(self, why: str) -> None:
        """Take nothing more from it and close once everything is written; `why` is what the owner is told."""
        self._why = self._why or why
        self.shut()

    def shut(self, lost: bool = False) -> None:
        """Close once everything is written; `lost`: at once. The owner is told when the connection is really gone."""
        if not lost:
            self.send_put_off()
        self.closed = True
        if self._transport is not None:
            if lost:
                self._transport.abort()
            else:
                self._transport.close()

    def _write(self) -> None:
        data = self._channel.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

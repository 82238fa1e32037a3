"""The join link, this end: JSON messages over one sealed channel, on asyncio.

Writing never blocks and nothing sent is ever dropped while the link lives; so that a chatty rank cannot fill our
memory, `on_room` tells the readers of its output when to pause. Beats and exits do not ask: they pass on top of the
bound.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from flodl_agent.events import DialFailed, LinkLost
from flodl_agent.road import CannotDial, connect
from flodl_wire import preface
from flodl_wire.channel import Initiator
from flodl_wire.deadlines import PREFACE, deadline
from flodl_wire.faults import Fault, Transient
from flodl_wire.frames import MESSAGE
from flodl_wire.join_messages import JoinDown, JoinUp
from flodl_wire.messages import decode_message, encode_message

_HIGH_WATER = (
    256 * 1024
)  # bytes on their way before output is left in its pipes: 2 s of a 1 Mbit/s line, so beats stay in time
_LEAST_HANDSHAKE = 3.0  # seconds: much of it is processor time, which no time-out scale makes shorter
_GOODBYE = 2.0  # seconds for the last words to arrive and the controller to close


class JoinLink(asyncio.Protocol):
    """Made by `dial`. `on_message` gets the controller's messages, `on_lost` the one end, `on_room` whether there is
    room.
    """

    def __init__(self, salt: bytes | None) -> None:
        self.on_message: Callable[[JoinDown], None] = lambda message: None
        self.on_lost: Callable[[LinkLost], None] = lambda lost: None
        self.on_room: Callable[[bool], None] = lambda room: None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.opened.add_done_callback(lambda done: done.cancelled() or done.exception())  # somebody has looked at it
        self._fault: Fault | None = None
        self._closed = asyncio.Event()
        self._channel = Initiator(preface.JOIN, salt)
        self._transport: asyncio.Transport
        self.address, self.port, self.own_address = "", 0, ""  # numeric

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self.address, self.port = (transport.get_extra_info("peername") or ("", 0))[:2]  # none: gone already
        self.own_address = transport.get_extra_info("sockname")[0]
        self._transport.write(self._channel.data_to_send())

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._channel.receive_data(data):
                self.on_message(decode_message(frame.body, JoinDown, "the controller"))
        except Fault as fault:
            self._fail(fault)
            return
        if self._channel.established and not self.opened.done():
            self.opened.set_result(None)
        self._flush()

    def eof_received(self) -> bool:
        try:
            self._channel.receive_eof()
        except Fault as fault:
            self._fail(fault)
        return False  # asyncio closes our side too

    def connection_lost(self, err: Exception | None) -> None:
        if not self.opened.done():
            try:
                self._channel.receive_eof()  # a refusal may be followed by a reset instead of an end
            except Fault as fault:
                self.opened.set_exception(fault)
        self._closed.set()
        self.on_lost(LinkLost(str(self._fault or err or "it was closed at the other end")))

    def pause_writing(self) -> None:
        self.on_room(False)

    def resume_writing(self) -> None:
        self.on_room(True)

    # ---- ours

    def send(self, message: JoinUp) -> None:
        """Queue `message`. On a link that is gone it goes nowhere, as it would have a moment earlier."""
        if not self._closed.is_set():
            self._channel.send(MESSAGE, encode_message(message))
            self._flush()

    async def goodbye(self) -> None:
        """All that was sent goes out; then half-close, so that no unread beat of theirs turns it into a reset; then
        wait for theirs.
        """
        if self._closed.is_set() or self._transport.is_closing():
            return
        try:
            self._transport.write_eof()
        except OSError:  # they have closed, and nobody here has been told yet
            self._transport.abort()
            return
        try:
            await asyncio.wait_for(self._closed.wait(), _GOODBYE)
        except asyncio.TimeoutError:
            self._transport.abort()

    def abort(self) -> None:
        """Close now, whatever is under way."""
        self._transport.abort()

    def _flush(self) -> None:
        data = self._channel.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _fail(self, fault: Fault) -> None:
        self._fault = fault
        if not self.opened.done():
            self.opened.set_exception(fault)
        self._transport.abort()


async def dial(host: str, port: int, salt: bytes | None, seconds: float) -> JoinLink:
    """A link whose handshake is done. Raises CannotDial: with a fault when trying again is no use (another key, another
    version).
    """
    sock = await connect(host, port, seconds)
    return await over(sock, salt)


async def over(sock: socket.socket, salt: bytes | None) -> JoinLink:
    """The link over a connected socket."""
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: JoinLink(salt), sock=sock)
    try:
        await asyncio.wait_for(asyncio.shield(link.opened), max(deadline(PREFACE), _LEAST_HANDSHAKE))
    except asyncio.TimeoutError:
        link.abort()
        raise CannotDial(DialFailed("other", "something answers there, and not in the words of flodl")) from None
    except Fault as fault:
        lasting = not isinstance(fault, Transient)
        raise CannotDial(DialFailed("other", fault.why, fault if lasting else None)) from None
    return link

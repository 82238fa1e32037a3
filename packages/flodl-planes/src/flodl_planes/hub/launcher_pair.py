"""The hub's end of the pair with the launcher: one JSON message per datagram, descriptors alongside."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from flodl_wire.faults import Broken
from flodl_wire.hub_messages import MAX_DATAGRAM, FromHub, Large, Passed, ToHub
from flodl_wire.messages import decode_message, encode_message


@dataclass(frozen=True)
class Closed:
    """The launcher's end is gone."""


@dataclass(frozen=True)
class PassedSocket:
    """A connection the door has routed to us; `head` is what it had read of it."""

    number: int
    head: bytes
    address: str
    sock: socket.socket

    @property
    def kind(self) -> int:
        """Of channel, as the preface has it; 0 when less than a preface was read."""
        return self.head[6] if len(self.head) > 6 else 0


class LauncherPair:
    """Receives in one thread, sends in another."""

    def __init__(self, pair: socket.socket) -> None:
        self._pair = pair
        pair.setblocking(True)

    def receive(self) -> ToHub | PassedSocket | Closed:
        """Wait for the next message. Raises Broken when it cannot be read."""
        try:
            body, descriptors, _, _ = socket.recv_fds(self._pair, MAX_DATAGRAM + 1, 4)
        except OSError:
            return Closed()
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if not body:
            return Closed()
        message: ToHub = decode_message(body, ToHub, "the launcher")
        try:
            if isinstance(message, Large):
                whole = os.pread(descriptors[0], message.size, 0)
                message = decode_message(whole, ToHub, "the launcher")
            elif isinstance(message, Passed):
                sock = socket.socket(fileno=descriptors.pop(0))
                return PassedSocket(message.number, bytes.fromhex(message.head), message.address, sock)
        except (IndexError, ValueError, OSError) as err:
            raise Broken("bad-message", "cannot read a message from the launcher", str(err)) from None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return message

    def send(self, message: FromHub, *, droppable: bool = False) -> bool:
        """Say `message`; False when the launcher is gone. A `droppable` one (live numbers) is left out when it does
        not listen.
        """
        body = encode_message(message)
        try:
            if len(body) > MAX_DATAGRAM:
                self._send_large(body)
            else:
                self._pair.send(body, socket.MSG_DONTWAIT if droppable else 0)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _send_large(self, body: bytes) -> None:
        memory = os.memfd_create("flodl-message", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(memory), "wb") as file:
                file.write(body)
            socket.send_fds(self._pair, [encode_message(Large(len(body)))], [memory])
        finally:
            os.close(memory)

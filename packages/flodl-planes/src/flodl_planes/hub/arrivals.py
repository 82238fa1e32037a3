"""Relays as they come: over the Unix socket of this box, or through the one port and its door; one receiving thread
each.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from flodl_planes.hub.relay_link import RelayLink, RemoteLink, SharedLink
from flodl_planes.hub.strangers import Strangers, address_of
from flodl_planes.plane.frame_socket import FrameSocket, LinkEnded
from flodl_planes.plane.sealed_socket import answer
from flodl_planes.relay.local_ranks import listen
from flodl_wire import deadlines, frames
from flodl_wire.faults import Fault
from flodl_wire.messages import decode_message
from flodl_wire.plane_messages import RelayUp


class Arrivals:
    """`hear` gets every message of a link, `ended` its end, both in the link's own thread."""

    def __init__(
        self,
        socket_path: str,
        salt: bytes,
        keyed: bool,
        hear: Callable[[RelayLink, RelayUp], None],
        ended: Callable[[RelayLink, str], None],
    ) -> None:
        self._salt, self._keyed = salt, keyed
        self._hear, self._ended = hear, ended
        self._strangers: Strangers[socket.socket] = Strangers()
        self._closed = False
        self._path = socket_path
        self._listener = listen(socket_path)
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def adopt(self, sock: socket.socket, head: bytes) -> None:
        """A connection that the door has passed on, with the bytes it had read."""
        one_too_many = self._strangers.enter(sock, address_of(sock))
        if one_too_many:
            with contextlib.suppress(OSError):
                one_too_many.shutdown(socket.SHUT_RDWR)  # its thread sees the end
        threading.Thread(target=self._answer, args=(sock, head), name="answer", daemon=True).start()

    def close(self) -> None:
        """Nobody comes in any more, and who has not shown its key goes."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with contextlib.suppress(OSError):
            Path(self._path).unlink()
        for stranger in self._strangers.everybody():
            with contextlib.suppress(OSError):
                stranger.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.05)  # out of descriptors for the moment
                continue
            link = SharedLink(FrameSocket(sock, deadlines.deadline(deadlines.SILENCE)))
            threading.Thread(target=self._listen_to, args=(link, []), name="relay", daemon=True).start()

    def _answer(self, sock: socket.socket, head: bytes) -> None:
        link = RemoteLink()
        try:
            link.link, arrived = answer(sock, head, self._salt, self._keyed, link.place)
        except Fault:
            sock.close()
            return
        finally:
            self._strangers.leave(sock)
        self._listen_to(link, arrived)

    def _listen_to(self, link: RelayLink, arrived: list[frames.Frame]) -> None:
        """The receiving thread of a relay, to its end."""
        try:
            while True:
                for frame in arrived:
                    self._hear(link, decode_message(frame.body, RelayUp, f"the relay of {link.host or '(unknown)'}"))
                arrived = link.receive()
        except LinkEnded as ended:
            self._ended(link, ended.why)
        except Fault as fault:
            self._ended(link, str(fault))

"""Our end of the pair with the hub: JSON datagrams both ways, descriptors one way, never blocking.

Orders are queued and always arrive; connections are only passed while fewer than `MAX_IN_FLIGHT` are untaken. The end
of the pair is the end of the hub.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable

from flodl_wire.faults import Fault
from flodl_wire.hub_messages import MAX_DATAGRAM, MAX_IN_FLIGHT, FromHub, Large, Passed, Taken, ToHub
from flodl_wire.messages import decode_message, encode_message

LARGEST = 256 * 1024 * 1024  # bytes of a message that comes as a memfd; a result of a million epochs stays below


class HubPair:
    """`heard` gets each message; `ended` is called once, at EOF, a broken message or an error."""

    def __init__(self, sock: socket.socket, heard: Callable[[FromHub], None], ended: Callable[[str], None]) -> None:
        self._sock = sock
        self._heard = heard
        self._ended = ended
        self._queue: deque[tuple[bytes, int]] = deque()  # datagram, descriptor of ours to close behind it or -1
        self._in_flight: set[int] = set()
        self._passed = 0
        self._closed = False
        self._writing = False
        sock.setblocking(False)

    def open(self) -> None:
        """Start listening; inside a running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._sock.fileno(), self._readable)

    def tell(self, message: ToHub) -> None:
        """Queue an order; one too large for a datagram travels in a memfd."""
        if self._closed:
            return
        body = encode_message(message)
        if len(body) <= MAX_DATAGRAM:
            self._queue.append((body, -1))
        else:
            fd = os.memfd_create("flodl-message", os.MFD_CLOEXEC)
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(body)
            self._queue.append((encode_message(Large(len(body))), fd))
        self._flush()

    def pass_on(self, sock: socket.socket, head: bytes, address: str) -> bool:
        """Pass a copy of the connection `sock` with the bytes already read; False when too many are untaken or the
        hub is gone.
        """
        if self._closed or len(self._in_flight) >= MAX_IN_FLIGHT:
            return False
        self._passed += 1
        body = encode_message(Passed(self._passed, head.hex(), address))
        if len(body) > MAX_DATAGRAM:
            return False
        self._in_flight.add(self._passed)
        self._queue.append((body, os.dup(sock.fileno())))
        self._flush()
        return True

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        for _, fd in self._queue:
            if fd >= 0:
                os.close(fd)
        self._queue.clear()
        self._sock.close()

    def _flush(self) -> None:
        while self._queue and not self._closed:
            body, fd = self._queue[0]
            try:
                if fd < 0:
                    self._sock.send(body)
                else:
                    rights = array.array("i", [fd])
                    self._sock.sendmsg([body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            except (BlockingIOError, InterruptedError):
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._sock.fileno(), self._flush)
                return
            except OSError as err:
                self._end(str(err))
                return
            self._queue.popleft()
            if fd >= 0:
                os.close(fd)
        if self._writing and not self._closed:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        for _ in range(32):  # bounded per turn: a chatty hub must not keep the door waiting
            if self._closed:
                return
            try:
                body, fds, flags, _ = socket.recv_fds(self._sock, MAX_DATAGRAM, 4)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionResetError:
                continue  # it ended with words of ours unread; that is told ahead of its own last words and its end
            except OSError as err:
                self._end(str(err))
                return
            if not body:
                self._end("")
                return
            try:
                self._take(body, fds, bool(flags & socket.MSG_TRUNC))
            except Fault as fault:
                self._end(str(fault))
            finally:
                for fd in fds:
                    with contextlib.suppress(OSError):
                        os.close(fd)

    def _take(self, body: bytes, fds: list[int], truncated: bool) -> None:
        message = decode_message(b"" if truncated else body, FromHub, "the hub")
        if isinstance(message, Large):
            size = min(message.size, LARGEST)
            whole = os.pread(fds[0], size, 0) if fds else b""
            message = decode_message(whole, FromHub, "the hub")
        if isinstance(message, Taken):
            self._in_flight.discard(message.number)
        else:
            self._heard(message)

    def _end(self, why: str) -> None:
        self.close()
        self._ended(why)

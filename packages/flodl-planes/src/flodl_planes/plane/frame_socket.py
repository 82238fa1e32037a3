"""Frames over a Unix socket inside one box, in clear, with file descriptors where a message says so.

Blocking; one thread may receive while others send (a lock keeps frames whole). Messages are small and whoever is at the
other end reads them, so a send that would block for long means that the process there stands still with a full socket:
it raises.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Sequence

import msgspec

from flodl_wire import frames
from flodl_wire.faults import Broken, Transient
from flodl_wire.messages import encode_message

SEND_WAIT_S = 5.0  # a reader that has not taken 200 KB of messages for so long does not read
FDS_AT_ONCE = 200  # the kernel passes 253 with one message
_READ = 64 * 1024


class LinkEnded(Transient):
    """The other side of a link is gone. `clean`: it closed between two frames."""

    def __init__(self, why: str, *, clean: bool = False) -> None:
        super().__init__("link-ended", "the link ended", why)
        self.clean = clean


class FrameSocket:
    """`fds`: the descriptors received so far and not taken yet, in order. Whoever pops one owns it.

    `silence_s`: hearing nothing for so long ends the link (for sides that beat); None: it may be silent for ever.
    """

    def __init__(self, sock: socket.socket, silence_s: float | None = None) -> None:
        self.sock = sock
        self._silence_s = silence_s
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SEND_WAIT_S))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(silence_s or 0.0))
        self.fds: deque[int] = deque()
        self._decoder = frames.FrameDecoder((frames.MESSAGE,))
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct, fds: Sequence[int] = ()) -> None:
        """One message, and descriptors with it. Raises LinkEnded."""
        self.send_body(encode_message(message), fds)

    post = send

    def send_body(self, body: bytes, fds: Sequence[int] = ()) -> None:
        """The same for a message that is encoded already."""
        data = memoryview(frames.encode_frame(frames.MESSAGE, body))
        try:
            with self._sending:
                for start in range(0, len(fds), FDS_AT_ONCE):
                    # a byte of the frame for each batch: ancillary data does not travel alone
                    socket.send_fds(self.sock, [data[:1]], list(fds[start : start + FDS_AT_ONCE]))
                    data = data[1:]
                self.sock.sendall(data)
        except OSError as err:
            with contextlib.suppress(
                OSError
            ):  # part of the frame may be out: the receiving thread must see an end here
                self.sock.shutdown(socket.SHUT_RDWR)
            raise LinkEnded(err.strerror or str(err)) from None

    def receive(self) -> list[frames.Frame]:
        """The frames that the next bytes complete (perhaps none). Raises LinkEnded at the end, Broken for garbage."""
        try:
            data, ancillary, flags, _ = self.sock.recvmsg(
                _READ, socket.CMSG_SPACE(FDS_AT_ONCE * 4), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            raise LinkEnded(f"nothing was heard for {self._silence_s:.0f} s") from None
        except OSError as err:
            raise LinkEnded(err.strerror or str(err)) from None
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.fds.extend(struct.unpack(f"{len(payload) // 4}i", payload[: len(payload) // 4 * 4]))
        if flags & socket.MSG_CTRUNC:
            raise Broken("bad-frame", "cannot read from a socket", "more descriptors came than one message may carry")
        if not data:
            raise LinkEnded("the other side closed it", clean=self._decoder.at_boundary)
        return self._decoder.feed(data)

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        """Also ends a `receive` that blocks in another thread. May be called twice."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()
        while self.fds:
            os.close(self.fds.popleft())


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))

"""A TCP proxy on loopback in front of a run's port: it keeps what passes, and may cut links on which nothing passes."""

from __future__ import annotations

import select
import socket
import threading
import time
from dataclasses import dataclass


@dataclass
class _Link:
    passed_at: float  # when something did last, either way
    cut: bool = False


class Proxy:
    """Carries 127.0.0.1:`port` (its own choice), or what comes to the listening `door`, to `host`:`to`.

    `idle_s`: a link on which nothing passed for so long is cut, as firewalls and clouds do; None: never.
    """

    def __init__(
        self, to: int, idle_s: float | None = None, host: str = "127.0.0.1", door: socket.socket | None = None
    ) -> None:
        self.seen: list[bytes] = []
        self.cut = 0  # links that were idle
        self._to = (host, to)
        self._idle_s = idle_s
        self._door = door or socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._link, args=(near,), daemon=True).start()

    def _link(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._to)
        except OSError:
            near.close()
            return
        with near, far:
            link = _Link(time.monotonic())
            back = threading.Thread(target=self._carry, args=(far, near, link), daemon=True)
            back.start()
            self._carry(near, far, link)
            back.join()
        self.cut += link.cut

    def _carry(self, source: socket.socket, sink: socket.socket, link: _Link) -> None:
        try:
            while self._wait(source, link) and (data := source.recv(1 << 16)):
                link.passed_at = time.monotonic()
                self.seen.append(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _wait(self, source: socket.socket, link: _Link) -> bool:
        """Until there is something to read; False when the link has been idle for too long, and is cut."""
        while self._idle_s is not None:
            left = link.passed_at + self._idle_s - time.monotonic()
            if left <= 0:
                link.cut = True
                source.shutdown(socket.SHUT_RDWR)
                return False
            if select.select([source], [], [], left)[0]:
                break
        return True

    def outwait(self, times: int) -> None:
        """Until a link that says nothing has been cut so many times, one after the other."""
        for _ in range(times):
            with socket.create_connection(("127.0.0.1", self.port), timeout=20) as silent:
                silent.sendall(b"\xf1")  # half a preface: the door waits for the rest
                while silent.recv(1 << 16):
                    pass

    def join(self) -> None:
        """Until `close`."""
        self._thread.join()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._door.close()

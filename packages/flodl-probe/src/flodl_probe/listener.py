"""A listener on the controller's port while a fleet is asked, so that each host can walk the whole road before any run
is there: firewalls, tunnels, large packets and clocks are then seen, not guessed.

It answers two plain HTTP requests and holds nothing: GET tells a nonce and the time, POST sends back as much as came.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

MARK = "x-flodl-probe"
BULK = 256 * 1024  # bytes: some hundred full packets
_PATIENCE = 10.0  # for one connection
_AT_ONCE = 256


class Listener:
    """Bound and answering from `with` to its end. Raises OSError when the port cannot be had."""

    def __init__(self, host: str | None, port: int, nonce: str) -> None:
        """`host`: an address of this box, None for all of them."""
        self._nonce = nonce
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        self._sockets = [_listening(family, address, port) for family, address in _addresses(host)]

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def __enter__(self) -> Listener:
        for sock in self._sockets:
            threading.Thread(target=self._accept, args=(sock,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the accept
            sock.close()

    def _accept(self, sock: socket.socket) -> None:
        while True:
            try:
                link, _ = sock.accept()
            except OSError:
                return
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()
            else:
                link.close()

    def _serve(self, link: socket.socket) -> None:
        try:
            with link, suppress(OSError):
                link.settimeout(_PATIENCE)
                head = b""
                while b"\r\n\r\n" not in head and len(head) < 4096:
                    part = link.recv(4096)
                    if not part:
                        return
                    head += part
                came = len(head.partition(b"\r\n\r\n")[2])
                size = BULK if head.startswith(b"POST ") else 0
                while came < size:
                    part = link.recv(1 << 16)
                    if not part:
                        return
                    came += len(part)
                answer = f"HTTP/1.1 200 OK\r\n{MARK}: {self._nonce}\r\nx-flodl-time: {time.time():.4f}\r\n\r\n"
                link.sendall(answer.encode() + bytes(size))
        finally:
            self._slots.release()


def _addresses(host: str | None) -> list[tuple[socket.AddressFamily, str]]:
    """A local address and loopback (tunnels end there), or everything."""
    if host is None:
        return [(socket.AF_INET6, "::")] if socket.has_dualstack_ipv6() else [(socket.AF_INET, "0.0.0.0")]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return [(family, host)] if host in ("127.0.0.1", "::1") else [(family, host), (socket.AF_INET, "127.0.0.1")]


def _listening(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address, port))
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock

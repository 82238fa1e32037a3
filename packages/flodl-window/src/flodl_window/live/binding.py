"""The page alone on an address of its own (``FLODL_DASHBOARD_BIND``): for colleagues who may watch and shall not reach
the run's port. It has no join link and no switch; whoever reaches it can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket

from flodl_window.http_door import HttpConnection, Pages
from flodl_wire import environ
from flodl_wire.faults import Refused

PORT = 3000  # where users of the reference look for it
WAITING = 128  # connections that have not been answered yet


def parse(text: str) -> tuple[str, int]:
    """``addr``, ``addr:port``, ``[v6]:port`` or ``:port`` (every address). Raises Refused."""

    def refuse(why: str) -> Refused:
        fix = f"write an address of this box, e.g. {environ.DASHBOARD_BIND}=192.168.1.5:{PORT}, or 0.0.0.0 for all"
        return Refused("bad-bind", f"cannot use {environ.DASHBOARD_BIND}={text}", why, fix)

    host, port = text.strip(), str(PORT)
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        if rest and not rest.startswith(":"):
            raise refuse(f"{rest!r} behind the address is no port")
        port = rest[1:] or port
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
        port = port or str(PORT)
    if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
        raise refuse(f"{port!r} is no TCP port")
    host = {"": "0.0.0.0", "*": "0.0.0.0", "localhost": "127.0.0.1"}.get(host, host)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise refuse(f"{host!r} is no numeric address") from None
    return host, int(port)


class PageDoor:
    """Serves `pages` read-only. `open` inside a running loop."""

    def __init__(self, pages: Pages, http_s: float) -> None:
        self.pages, self._http_s = pages, http_s
        self._waiting: dict[HttpConnection, asyncio.TimerHandle] = {}
        self._server: asyncio.Server | None = None
        self.host, self.port = "", 0

    async def open(self, host: str, port: int) -> str:
        """Why the address cannot be served ("" when it is): a run goes on without."""
        try:
            self._server = await asyncio.get_running_loop().create_server(self._made, host, port, backlog=64)
        except OSError as err:
            return f"cannot serve the page on {host}:{port}: {err.strerror or err}"
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        return ""

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection, timer in list(self._waiting.items()):
            timer.cancel()
            connection.drop()
        self._waiting.clear()

    @property
    def warning(self) -> str:
        """What to say about who can read; "" when only this box can."""
        if ipaddress.ip_address(self.host).is_loopback:
            return ""
        return f"whoever reaches {self.host}:{self.port} can read this run's page (and nothing more)"

    def _made(self) -> asyncio.Protocol:
        return _Visitor(self)

    def enter(self, connection: HttpConnection) -> bool:
        """False when too many wait."""
        if len(self._waiting) >= WAITING:
            return False
        timer = asyncio.get_running_loop().call_later(self._http_s, connection.time_out)
        self._waiting[connection] = timer
        return True

    def leave(self, connection: HttpConnection) -> None:
        with contextlib.suppress(KeyError):
            self._waiting.pop(connection).cancel()


class _Visitor(HttpConnection):
    def __init__(self, door: PageDoor) -> None:
        super().__init__(door.pages, "?", self._settled, operator=False)
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._door.enter(self):
            self.drop()

    def _settled(self) -> None:
        self._door.leave(self)

"""The road to the controller: one TCP connection, by the first of its addresses that answers.

Names are resolved here, never the other way round: an address is dialled and printed as it was typed. Addresses are
tried a quarter of a second apart, not one after the other's time-out (a black-holed one must not cost the good one its
time). A link-local IPv6 address without its interface cannot be dialled and is left out.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

import psutil

from flodl_agent.events import DialFailed
from flodl_wire.resending import resend_soon

_TELLING = ("refused", "timeout", "other", "route")  # of several failures, the one worth reporting
_STAGGER = 0.25  # seconds, RFC 8305's "connection attempt delay"
_LEAST = 1.0  # seconds: a shorter try would call a closed port or a busy box a time-out


class CannotDial(Exception):
    def __init__(self, failed: DialFailed) -> None:
        self.failed = failed
        super().__init__(failed.text)


async def connect(host: str, port: int, seconds: float) -> socket.socket:
    """A connected, non-blocking socket. Raises CannotDial with what was seen."""
    seconds = max(seconds, _LEAST)
    addresses = await _addresses(host, port, seconds)
    winner: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
    failures: list[DialFailed] = []

    async def attempt(family: int, address: tuple[Any, ...], delay: float) -> None:
        await asyncio.sleep(delay)
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        keep_alive(sock)
        resend_soon(sock)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
        except OSError as err:
            failures.append(_what_was_seen(err))
            if len(failures) == len(addresses) and not winner.done():
                winner.set_exception(CannotDial(min(failures, key=lambda failed: _TELLING.index(failed.kind))))
        else:
            if not winner.done():
                winner.set_result(sock)
                return
        finally:
            if winner.cancelled() or not winner.done() or winner.exception() or winner.result() is not sock:
                sock.close()

    tries = [asyncio.ensure_future(attempt(*where, index * _STAGGER)) for index, where in enumerate(addresses)]
    try:
        return await asyncio.wait_for(winner, seconds)
    except asyncio.TimeoutError:
        raise CannotDial(DialFailed("timeout")) from None
    finally:
        for task in tries:
            task.cancel()
        await asyncio.gather(*tries, return_exceptions=True)


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel show now and then that the connection is in use: clouds drop one that is idle for four minutes,
    and a store channel may be.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 30), (socket.TCP_KEEPCNT, 6)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def _addresses(host: str, port: int, seconds: float) -> list[tuple[int, tuple[Any, ...]]]:
    """Family and address (IPv6 ones have four fields) of each, in the order to try them."""
    loop = asyncio.get_running_loop()
    try:
        found = _numeric(host, port) or await asyncio.wait_for(
            loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), seconds
        )
    except socket.gaierror as err:
        raise CannotDial(DialFailed("name", err.strerror or str(err))) from None
    except asyncio.TimeoutError:
        raise CannotDial(DialFailed("name", "the name service does not answer")) from None
    usable = [(int(family), address) for family, _, _, _, address in found if not _lacks_interface(address)]
    if not usable:
        raise CannotDial(DialFailed("name", "only link-local addresses; fe80::…%eth0 says on which interface"))
    return usable


def _numeric(host: str, port: int) -> Sequence[tuple[int, int, int, str, tuple[Any, ...]]]:
    """What a number stands for, with no name service and no thread that could be kept waiting; [] for a name."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return []


def _lacks_interface(address: tuple[object, ...]) -> bool:
    number = ipaddress.ip_address(str(address[0]).partition("%")[0])
    return number.version == 6 and number.is_link_local and address[3] == 0


def _what_was_seen(err: OSError) -> DialFailed:
    if isinstance(err, ConnectionRefusedError):
        return DialFailed("refused")
    if isinstance(err, TimeoutError):
        return DialFailed("timeout")
    if err.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return DialFailed("route")
    return DialFailed("other", err.strerror or str(err))


def interface_of(address: str) -> str:
    """The name of the interface that has `address` (ours), "" when none has."""
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == address.partition("%")[0] for entry in entries):
            return str(name)
    return ""

"""Can the ranks reach one another directly? Tried with plain TCP before a collective is begun, which would only hang.

Everything is told through the run's store; nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Protocol

from flodl_wire import deadlines
from flodl_wire.faults import Broken

CONNECT_S = 5.0  # to a neighbour: three tries of a lost SYN
PRESENT_S = 60.0  # until every rank of the round has come to the meeting
LOOK_S = 0.01
NOWHERE = "-"  # no interface was named: the collective finds one, or fails by itself
_SIOCGIFADDR = 0x8915  # linux/sockios.h


class Board(Protocol):
    """The part of torch's Store that is needed."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def check(self, keys: list[str]) -> bool: ...


class Interrupted(Exception):
    """Something else has to be done before this can come to an end."""


class Meeting:
    """Of the ranks `members` for one attempt of one round. `turned`: says that it is called off."""

    def __init__(self, board: Board, name: str, members: list[int], me: int, turned: Callable[[], bool]) -> None:
        self._board = board
        self._name = name
        self._members = members
        self._me = me
        self._turned = turned

    def hold(self, host: str) -> None:
        """Everybody is here and can reach every other host. Raises Broken naming who could not reach whom, or
        Interrupted.
        """
        address = own_address()
        with listener(address) as listening:
            port = listening.getsockname()[1]
            self._say("at", f"{host} {address or NOWHERE} {port}")
            places = [self._heard("at", rank).split() for rank in self._await("at")]
            trouble = self._try_hosts(host, places)
            self._say("reached", trouble or "yes")
            for rank in self._await("reached"):
                word = self._heard("reached", rank)
                if word != "yes":
                    raise Broken("no-direct-road", "cannot join the ranks", word)

    def _try_hosts(self, host: str, places: list[list[str]]) -> str:
        """What is wrong with the road to the first rank of another host; "" when nothing is."""
        tried = {host}
        for name, address, port in places:
            if name in tried or address == NOWHERE:
                continue
            tried.add(name)
            try:
                socket.create_connection((address, int(port)), deadlines.deadline(CONNECT_S)).close()
            except OSError as err:
                return f"{host} cannot connect to {name} at {address}: {err.strerror or err}"
        return ""

    def _say(self, what: str, word: str) -> None:
        self._board.set(f"{self._name}/{what}/{self._me}", word)

    def _heard(self, what: str, rank: int) -> str:
        return self._board.get(f"{self._name}/{what}/{rank}").decode()

    def _await(self, what: str) -> list[int]:
        end = time.monotonic() + deadlines.deadline(PRESENT_S)
        missing = list(self._members)
        while missing:
            missing = [rank for rank in missing if not self._board.check([f"{self._name}/{what}/{rank}"])]
            if missing:
                if self._turned():
                    raise Interrupted
                if time.monotonic() > end:
                    raise Broken("no-meeting", "cannot join the ranks", f"rank {missing[0]} has not come")
                time.sleep(LOOK_S)
        return self._members


def listener(address: str) -> socket.socket:
    """A port of this host for the others to try; it answers nothing."""
    with contextlib.suppress(OSError):
        return socket.create_server((address, 0))
    return socket.create_server(("", 0))


def own_address() -> str:
    """The IPv4 address of the interface that collectives will use; "" when that is left to them."""
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        for name in os.environ.get(variable, "").removeprefix("=").split(","):
            found = address_of(name)
            if found:
                return found
    return ""


def address_of(interface: str) -> str:
    """The IPv4 address of `interface`, "" when it has none, or there is no such interface."""
    if not interface or interface.startswith("^"):
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])

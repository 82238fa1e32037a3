"""Connections that have not shown their key yet: how many are borne, and who goes when there are more."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

STRANGERS = 256  # each costs a descriptor for at most deadlines.PREFACE

T = TypeVar("T", bound=Hashable)


class Strangers(Generic[T]):
    """Whoever is held here, with its address, in order of arrival. For several threads."""

    def __init__(self, limit: int = STRANGERS) -> None:
        self._limit = limit
        self._held: dict[T, str] = {}
        self._lock = threading.Lock()

    def enter(self, stranger: T, address: str) -> T | None:
        """Hold `stranger`. Over the limit: who is to be dropped for it, the oldest of the busiest address (so that a
        crowd from one address costs no other); it is held no more.
        """
        with self._lock:
            out = None
            if len(self._held) >= self._limit:
                busiest = Counter(self._held.values()).most_common(1)[0][0]
                out = next(one for one, its in self._held.items() if its == busiest)
                del self._held[out]
            self._held[stranger] = address
            return out

    def leave(self, stranger: T) -> None:
        """It has shown its key, or is gone."""
        with self._lock:
            self._held.pop(stranger, None)

    def everybody(self) -> list[T]:
        """All that are held now."""
        with self._lock:
            return list(self._held)


def address_of(sock: socket.socket) -> str:
    """The peer's address without its port; "" when there is none any more."""
    try:
        return str(sock.getpeername()[0])
    except (OSError, IndexError):
        return ""

"""Who watches: server-sent events, each piece of news encoded once for all of them.

A page that comes gets the whole history and then the news; one that comes back says which news it had last and gets
those it missed, or the history again when they are no longer there. Whoever does not read is dropped: it comes back by
itself and loses nothing. Nothing here waits for anybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

MOST_PAGES = 64
RING_BYTES = 1 << 20  # news kept for those who come back
UNREAD = 256 * 1024  # bytes on their way to one page beyond what it was sent at first
KEPT_S = 2.0  # age at which an encoded history is made anew
ALIVE_EVERY_S = 10.0  # of silence; so that both ends notice a dead connection
STUCK_S = 10.0  # who takes nothing for so long is dropped, however little waits
ALL_UNREAD = 64 << 20  # bytes on their way to all pages together; above it no further page is let in
STATE_BYTES_PER_S = 16 * 1024  # a large state is sent seldom: a thousand hosts say little in a second that is news


class Watcher(Protocol):
    """One open page's connection."""

    def write(self, data: bytes) -> None: ...
    def unread(self) -> int: ...
    def drop(self) -> None: ...
    def finish(self) -> None: ...


@dataclass
class _Pace:
    """How far a page is behind: what it may leave unread, what it last had left, and since when it takes nothing."""

    allowed: int
    unread: int
    since: float


class Feed:
    """`instance` names the run in event ids, so that a page left open over the next run starts afresh. `history` and
    `state` give the documents as JSON.
    """

    def __init__(self, instance: str, history: Callable[[], bytes], state: Callable[[], bytes]) -> None:
        self._instance = instance[:8]
        self._history, self._state = history, state
        self._watchers: dict[Watcher, _Pace] = {}
        self._ring: deque[tuple[int, bytes]] = deque()
        self._ring_bytes = 0
        self._number = 0
        self._kept: tuple[float, int, bytes] | None = None  # when, the number of its last news, the event
        self._last_state = b""
        self._state_due = 0.0
        self._spoke_at = 0.0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._watchers)

    @property
    def full(self) -> bool:
        return len(self._watchers) >= MOST_PAGES or sum(each.unread() for each in self._watchers) > ALL_UNREAD

    def enter(self, watcher: Watcher, last_id: str, now: float) -> None:
        """A page: what it needs to be up to date, and from then on the news."""
        missed = self._missed(last_id)
        first = b"".join(missed) if missed is not None else self._whole(now)
        state = self._state()
        first += self._state_event(state)
        if not self._watchers:
            self._last_state = state
        elif state != self._last_state:
            self._last_state = b""  # not all have the same one: the next that is sent is news to some of them
        self._watchers[watcher] = _Pace(len(first) + UNREAD, len(first), now)
        watcher.write(b"retry: 1000\n\n" + first)

    def leave(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def tell(self, news: bytes, now: float) -> None:
        """Send `news`, a JSON document, to everybody."""
        self._number += 1
        event = _event("news", f"{self._instance}-{self._number}", news)
        self._ring.append((self._number, event))
        self._ring_bytes += len(event)
        while self._ring_bytes > RING_BYTES and len(self._ring) > 1:
            self._ring_bytes -= len(self._ring.popleft()[1])
        self._send(event, now)

    def look(self, now: float, *, urgent: bool = False) -> None:
        """Send the state where it has changed, a sign of life after a silence, and drop who takes nothing. `urgent`:
        the state, however lately it was sent.
        """
        for watcher, pace in list(self._watchers.items()):
            unread = watcher.unread()
            if unread == 0 or unread < pace.unread:
                pace.since = now
            elif now - pace.since > STUCK_S:
                self._drop(watcher)
            pace.unread = unread
        if not self._watchers:
            return
        if urgent or now >= self._state_due:
            state = self._state()
            self._state_due = now + len(state) / STATE_BYTES_PER_S
            if state != self._last_state:
                self._last_state = state
                self._send(self._state_event(state), now)
        if now - self._spoke_at >= ALIVE_EVERY_S:
            self._send(b": alive\n\n", now)

    def end(self) -> None:
        """The run is over: say so, and let everybody go once they have read it."""
        for watcher in list(self._watchers):
            watcher.write(_event("end", "", b"{}"))
            watcher.finish()
        self._watchers.clear()

    def _send(self, event: bytes, now: float) -> None:
        self._spoke_at = now
        for watcher, pace in list(self._watchers.items()):
            unread = watcher.unread()
            if unread > pace.allowed:
                self._drop(watcher)
                continue
            if unread == 0:
                pace.allowed = UNREAD
            watcher.write(event)

    def _drop(self, watcher: Watcher) -> None:
        self.dropped += 1
        self.leave(watcher)
        watcher.drop()

    def _missed(self, last_id: str) -> list[bytes] | None:
        """The news behind `last_id`; None when some of them are gone, or it is another run's."""
        instance, _, number = last_id.partition("-")
        if instance != self._instance or not (number.isascii() and number.isdigit()) or len(number) > 15:
            return None
        last = int(number)
        if last > self._number or (self._ring and last + 1 < self._ring[0][0]):
            return None
        return [event for at, event in self._ring if at > last]

    def _whole(self, now: float) -> bytes:
        """The history, encoded at most every `KEPT_S`, with the news since then."""
        kept = self._kept
        if kept is None or now - kept[0] > KEPT_S or (self._ring and kept[1] + 1 < self._ring[0][0]):
            event = _event("history", f"{self._instance}-{self._number}", self._history())
            kept = self._kept = (now, self._number, event)
        return kept[2] + b"".join(event for number, event in self._ring if number > kept[1])

    @staticmethod
    def _state_event(state: bytes) -> bytes:
        return _event("state", "", state)  # no id: it is always sent whole


def _event(kind: str, number: str, data: bytes) -> bytes:
    """`data` is JSON on one line."""
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {kind}\ndata: ".encode() + data.rstrip(b"\n") + b"\n\n"

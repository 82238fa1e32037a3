"""The few HTTP requests the one port answers, in an asyncio protocol: the state, the page and its data, and the
operator's switch.

No web page may fire or read a run through its visitor's browser, except the run's own page, which only reads
(live/requests.py has the walls).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from flodl_window.live import requests
from flodl_window.live.answers import Answer
from flodl_window.live.feed import Watcher

MAX_HEAD = 16 * 1024  # a browser's cookies for "localhost" are longer than one would think
MAX_BODY = 1024  # POST /start has none to speak of
LINGER = 1.0  # seconds for the reader to take the answer before the socket goes; closing on unread bytes would reset it
STUCK_S = 10.0  # an answer of which nothing is taken for so long is given up
REASONS = {
    200: "OK",
    304: "Not Modified",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Pages(Protocol):
    """What there is to serve. A connection whose answer is a stream becomes a watcher until it ends."""

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer | None: ...
    def watch(self, watcher: Watcher, headers: Mapping[str, str]) -> None: ...
    def unwatch(self, watcher: Watcher) -> None: ...
    def start(self, *, loopback: bool, authorization: str) -> tuple[int, dict[str, object]]: ...
    def is_own_name(self, host: str) -> bool: ...


def is_request_start(head: bytes) -> bool:
    """True when these first bytes may be HTTP: a method in capitals. (A flodl channel's first byte is no ASCII
    letter.)
    """
    word = head.split(b" ", 1)[0]
    return bool(word) and word.isalpha() and word.isupper()


class HttpConnection(asyncio.Protocol):
    """One request, one answer, then the connection ends; a page's stream goes on until either side ends it. Not
    `operator`: the page and its data alone.
    """

    def __init__(self, pages: Pages, address: str, done: Callable[[], None], *, operator: bool = True) -> None:
        self._pages = pages
        self._address = address
        self._done = done
        self._buffer = bytearray()
        self._operator = operator
        self._answered = False
        self._watching = False
        self._left = 1 << 62  # bytes unwritten when it was last looked at
        self._taken_at = 0.0  # when they had become fewer
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return  # read on until it closes, so that no reset eats the answer
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                self._answer(431, {"error": f"the request's head is longer than {MAX_HEAD} bytes"})
            return
        self._handle(bytes(self._buffer[:end]), len(self._buffer) - end - 4)

    def eof_received(self) -> bool:
        if self._answered:
            return False  # it has closed behind the answer: so do we, once everything is written
        self._answer(400, {"error": "the request ended before its head did"})
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watching:
            self._pages.unwatch(self)
        self._done()

    def time_out(self) -> None:
        """The door's patience with the request is over; an answer takes as long as its reader reads."""
        if not self._answered:
            self._answer(408, {"error": "no whole request in time"})

    def _handle(self, head: bytes, body_bytes: int) -> None:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._answer(400, {"error": "that is no HTTP/1 request line"})
            return
        method, target, _ = words
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                self._answer(400, {"error": "a header line is malformed"})
                return
            headers.setdefault(name.lower(), value.strip())
        path = target.partition("?")[0]
        allowed = requests.allowed(path, operator=self._operator)
        if allowed is None:
            self._nothing(method)
        elif method not in allowed:
            self._answer(405, {"error": f"{path} takes {' or '.join(allowed)}"}, method, {"Allow": ", ".join(allowed)})
        elif why := requests.refusal(method, headers, self._pages.is_own_name):
            self._answer(403, {"error": why}, method)
        elif method == "POST":
            self._post(headers, body_bytes)
        else:
            self._get(path, headers, method)

    def _nothing(self, method: str) -> None:
        there = requests.names(operator=self._operator)
        self._answer(404, {"error": f"nothing here by that name; there is {there}"}, method)

    def _get(self, path: str, headers: dict[str, str], method: str) -> None:
        answer = self._pages.answer(path, headers)
        if answer is None:
            self._nothing(method)
        elif not answer.stream or method == "HEAD":
            self._write(answer, method)
        elif self._transport is not None and not self._transport.is_closing():
            self._answered = self._watching = True
            self._done()
            self._transport.write(_head(answer, None))
            self._pages.watch(self, headers)

    # a page's stream: Watcher

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def unread(self) -> int:
        """Bytes that wait for the page's connection."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def drop(self) -> None:
        self._watching = False
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Everything is written; what the page has not taken in a moment, it does not get."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER, self._transport.abort)

    def _post(self, headers: dict[str, str], body_bytes: int) -> None:
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            self._answer(400, {"error": "Content-Length is no number"})
        elif int(length[:9]) > MAX_BODY or body_bytes > MAX_BODY or "transfer-encoding" in headers:
            self._answer(413, {"error": f"the body may have {MAX_BODY} bytes, announced by Content-Length"})
        else:
            status, body = self._pages.start(
                loopback=is_loopback(self._address), authorization=headers.get("authorization", "")
            )
            self._answer(status, body)

    def _answer(
        self, status: int, body: dict[str, object], method: str = "GET", more: dict[str, str] | None = None
    ) -> None:
        self._write(Answer(status, json.dumps(body).encode() + b"\n", headers=more or {}), method)

    def _write(self, answer: Answer, method: str) -> None:
        self._answered = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        bare = method == "HEAD" or answer.status == 304
        length = None if answer.status == 304 else len(answer.body)  # a 304's would be that of what it leaves out
        transport.write(_head(answer, length) + (b"" if bare else answer.body))
        transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER, self._hang_up)

    def _hang_up(self) -> None:
        """Not in the middle of a long answer that is being read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        loop = asyncio.get_running_loop()
        left = transport.get_write_buffer_size()
        if left < self._left:
            self._left, self._taken_at = left, loop.time()
        if left and loop.time() - self._taken_at < STUCK_S:
            loop.call_later(LINGER, self._hang_up)
        else:
            transport.abort()


def _head(answer: Answer, length: int | None) -> bytes:
    head = {
        "Content-Type": answer.type,
        **({} if length is None else {"Content-Length": str(length)}),
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        **answer.headers,
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Status')}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in head.items()), "", ""]).encode()


def is_loopback(address: str) -> bool:
    """`address` is numeric; an IPv4 address inside IPv6 counts as what it is."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)


def own_names(controller_host: str) -> frozenset[str]:
    """Names that a browser's Host, and any POST's, may carry beside numeric addresses."""
    names = {"localhost", "", controller_host.lower(), socket.gethostname().lower()}
    short = {name.partition(".")[0] for name in names}
    return frozenset(names | short | {f"{socket.gethostname().lower().partition('.')[0]}.local"})

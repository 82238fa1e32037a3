"""The few HTTP requests the one port answers, in an asyncio protocol: the state, and the operator's switch.

No web page may fire or read a run through its visitor's browser: anything with an Origin, or that a browser marks as
cross-site, is refused, and a POST must name this box as its Host (else a page could point its own name here).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Callable
from typing import Protocol

MAX_HEAD = 16 * 1024  # a browser's cookies for "localhost" are longer than one would think
MAX_BODY = 1024  # POST /start has none to speak of
LINGER = 1.0  # seconds for the reader to take the answer before the socket goes; closing on unread bytes would reset it
ROUTES = {"/": ("GET", "HEAD"), "/state.json": ("GET", "HEAD"), "/start": ("POST",)}
REASONS = {
    200: "OK",
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
    """What there is to serve."""

    def state_json(self) -> bytes | None: ...
    def start(self, *, loopback: bool, authorization: str) -> tuple[int, dict[str, object]]: ...
    def is_own_name(self, host: str) -> bool: ...


def is_request_start(head: bytes) -> bool:
    """True when these first bytes may be HTTP: a method in capitals. (A flodl channel's first byte is no ASCII
    letter.)
    """
    word = head.split(b" ", 1)[0]
    return bool(word) and word.isalpha() and word.isupper()


class HttpConnection(asyncio.Protocol):
    """One request, one answer, then the connection ends."""

    def __init__(self, pages: Pages, address: str, done: Callable[[], None]) -> None:
        self._pages = pages
        self._address = address
        self._done = done
        self._buffer = bytearray()
        self._answered = False
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
        self._done()

    def time_out(self) -> None:
        """The door's patience is over."""
        if not self._answered:
            self._answer(408, {"error": "no whole request in time"})
        elif self._transport is not None:
            self._transport.abort()

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
        allowed = ROUTES.get(path)
        if allowed is None:
            self._answer(404, {"error": f"nothing here by that name; there is {', '.join(ROUTES)}"}, method)
        elif method not in allowed:
            self._answer(405, {"error": f"{path} takes {' or '.join(allowed)}"}, method, {"Allow": ", ".join(allowed)})
        elif "origin" in headers or headers.get("sec-fetch-site", "") == "cross-site":
            self._answer(403, {"error": "web pages may neither read nor fire a run"}, method)
        elif method == "POST":
            self._post(headers, body_bytes)
        else:
            state = self._pages.state_json()
            if state is None:
                self._answer(503, {"error": "nothing to tell yet"}, method)
            else:
                self._write(200, state, method)

    def _post(self, headers: dict[str, str], body_bytes: int) -> None:
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            self._answer(400, {"error": "Content-Length is no number"})
        elif int(length[:9]) > MAX_BODY or body_bytes > MAX_BODY or "transfer-encoding" in headers:
            self._answer(413, {"error": f"the body may have {MAX_BODY} bytes, announced by Content-Length"})
        elif not self._pages.is_own_name(_host_of(headers.get("host", ""))):
            self._answer(403, {"error": "the Host header names another box"})
        else:
            status, body = self._pages.start(
                loopback=is_loopback(self._address), authorization=headers.get("authorization", "")
            )
            self._answer(status, body)

    def _answer(
        self, status: int, body: dict[str, object], method: str = "GET", more: dict[str, str] | None = None
    ) -> None:
        self._write(status, json.dumps(body).encode() + b"\n", method, more)

    def _write(self, status: int, body: bytes, method: str, more: dict[str, str] | None = None) -> None:
        self._answered = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        head = [
            f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-cache",
            "X-Content-Type-Options: nosniff",
            *(f"{name}: {value}" for name, value in (more or {}).items()),
            "Connection: close",
        ]
        transport.write("\r\n".join(head).encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else body))
        transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER, transport.abort)


def _host_of(header: str) -> str:
    """The Host header without its port, IPv6 without brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header


def is_loopback(address: str) -> bool:
    """`address` is numeric; an IPv4 address inside IPv6 counts as what it is."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)


def own_names(controller_host: str) -> frozenset[str]:
    """Names a POST's Host may carry beside numeric addresses."""
    names = {"localhost", "", controller_host.lower(), socket.gethostname().lower()}
    return frozenset(names | {name.partition(".")[0] for name in names})

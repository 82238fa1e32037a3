"""The one port on real loopback sockets, with everything behind the door as plain lists."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from flodl_window.door import Door, DoorLimits
from flodl_window.join_link import JoinLink
from flodl_window.live.answers import Answer
from flodl_window.live.feed import Watcher
from flodl_wire.faults import Fault
from flodl_wire.join_messages import Accept, Hello, JoinUp

SALT = bytes(range(16))
OTHER = bytes(16)


class House:
    """Everything behind the door, as plain lists."""

    def __init__(self, *, openly: bool = False, **limits: Any) -> None:
        self.openly, self.limits = openly, {"preface_s": 5.0, "http_s": 5.0, **limits}
        self.hellos: list[Hello] = []
        self.messages: list[JoinUp] = []
        self.closed: list[str] = []
        self.passed: list[tuple[bytes, str]] = []
        self.complaints: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.links: list[JoinLink] = []
        self.copies: list[socket.socket] = []
        self.busy = False
        self.state: bytes | None = b'{"phase": "waiting"}\n'
        self.changed = asyncio.Event()

    async def __aenter__(self) -> House:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        self.port = sock.getsockname()[1]
        self.door = Door(
            [sock],
            owner=self,
            pages=self,
            hub=self,
            salt_for=lambda keyed: SALT if keyed or not self.openly else None,
            limits=DoorLimits(**self.limits),
            complain=lambda text: self.note(self.complaints, text),
            refused=self._refused,
        )
        await self.door.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.door.close()
        for link in self.links:
            link.shut(lost=True)
        for copy in self.copies:
            copy.close()
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)

    def _refused(self, address: str, fault: Fault) -> None:
        self.note(self.refused, (address, fault.code))

    def note(self, where: list[Any], what: Any) -> None:
        where.append(what)
        self.changed.set()

    async def until(self, true: Callable[[], object]) -> None:
        async def wait() -> None:
            while not true():
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(wait(), 5)

    # what the door needs

    def link_hello(self, link: JoinLink, hello: Hello) -> None:
        self.links.append(link)
        self.note(self.hellos, hello)
        link.send(Accept([0], 1.0, "nonce"))

    def link_message(self, link: JoinLink, message: JoinUp) -> None:
        self.note(self.messages, message)

    def link_closed(self, link: JoinLink, why: str) -> None:
        self.note(self.closed, why)

    def pass_on(self, sock: socket.socket, head: bytes, address: str) -> bool:
        if self.busy:
            return False
        copy = socket.socket(fileno=os.dup(sock.fileno()))
        copy.send(b"the hub was here")
        self.copies.append(copy)
        self.note(self.passed, (head, address))
        return True

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        if path in ("/", "/state.json"):
            return Answer(503, b'{"error": "nothing yet"}') if self.state is None else Answer(200, self.state)
        return None

    def watch(self, watcher: Watcher, headers: Mapping[str, str]) -> None:
        raise AssertionError("nothing here is a stream")

    def unwatch(self, watcher: Watcher) -> None:
        raise AssertionError("nothing here is a stream")

    def start(self, *, loopback: bool, authorization: str) -> tuple[int, dict[str, object]]:
        return 409, {"error": "no switch", "loopback": loopback, "proof": authorization}

    def is_own_name(self, host: str) -> bool:
        return host in ("localhost", "127.0.0.1")


def in_house(test: Callable[[House], Awaitable[None]], **how: Any) -> None:
    async def run() -> None:
        async with House(**how) as house:
            await test(house)

    asyncio.run(asyncio.wait_for(run(), 20))


async def http(house: House, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """One raw request; status, headers, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split(" ")[1]), headers, body

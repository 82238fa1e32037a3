from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

from flodl_window.hub_pair import HubPair
from flodl_wire.hub_messages import MAX_DATAGRAM, MAX_IN_FLIGHT, Form, Large, Notice, Passed, Stop, Taken, ToHub
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.specs import RankPlace


class Pair:
    """Both ends; `theirs` is the hub's, blocking with a deadline."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs.settimeout(5)
        self.heard: list[object] = []
        self.ended: list[str] = []
        self.changed = asyncio.Event()
        self.pair = HubPair(ours, self._hear, self._end)
        self.pair.open()

    def _hear(self, message: object) -> None:
        self.heard.append(message)
        self.changed.set()

    def _end(self, why: str) -> None:
        self.ended.append(why)
        self.changed.set()

    def say(self, message: object) -> None:
        self.theirs.send(encode_message(message))  # type: ignore[arg-type]

    async def receive(self) -> tuple[object, list[int]]:
        body, fds, _, _ = await asyncio.to_thread(socket.recv_fds, self.theirs, MAX_DATAGRAM, 4)
        return decode_message(body, ToHub, "the launcher"), fds

    async def next(self) -> None:
        self.changed.clear()
        await asyncio.wait_for(self.changed.wait(), 5)


def with_pair(test: Callable[[Pair], Awaitable[None]]) -> None:
    async def run() -> None:
        pair = Pair()
        try:
            await asyncio.wait_for(test(pair), 20)
        finally:
            pair.pair.close()
            pair.theirs.close()

    asyncio.run(run())


def test_orders_and_reports_go_both_ways() -> None:
    async def test(pair: Pair) -> None:
        pair.pair.tell(Stop("done"))
        assert (await pair.receive())[0] == Stop("done")
        pair.say(Notice("hello"))
        await pair.next()
        assert pair.heard == [Notice("hello")]

    with_pair(test)


def test_a_connection_arrives_as_a_descriptor_with_what_was_read() -> None:
    async def test(pair: Pair) -> None:
        near, far = socket.socketpair()
        assert pair.pair.pass_on(far, b"\xf1\x0d", "10.0.0.7")
        far.close()
        message, fds = await pair.receive()
        assert message == Passed(1, "f10d", "10.0.0.7")
        with socket.socket(fileno=fds[0]) as passed:
            near.send(b"still open")
            assert passed.recv(100) == b"still open"
        near.close()

    with_pair(test)


def test_no_more_than_a_bounded_number_is_untaken() -> None:
    async def test(pair: Pair) -> None:
        near, far = socket.socketpair()
        accepted = [pair.pair.pass_on(far, b"x", "a") for _ in range(MAX_IN_FLIGHT + 3)]
        assert accepted == [True] * MAX_IN_FLIGHT + [False] * 3
        pair.pair.tell(Stop("orders are never refused"))
        for _ in range(MAX_IN_FLIGHT):
            _, fds = await pair.receive()
            os.close(fds[0])
        assert (await pair.receive())[0] == Stop("orders are never refused")
        pair.say(Taken(1))
        pair.say(Notice("read the line before"))
        await pair.next()
        assert pair.pair.pass_on(far, b"x", "a") and not pair.pair.pass_on(far, b"x", "a")
        near.close()
        far.close()

    with_pair(test)


def test_what_is_larger_than_a_datagram_travels_in_memory() -> None:
    async def test(pair: Pair) -> None:
        places = [RankPlace(rank, f"host-{rank}", 0, "cpu") for rank in range(5000)]
        pair.pair.tell(Form(places))
        message, fds = await pair.receive()
        assert isinstance(message, Large)
        assert decode_message(os.pread(fds[0], message.size, 0), ToHub, "x") == Form(places)
        body = encode_message(Notice("x" * 300_000))
        os.ftruncate(fds[0], 0)
        os.pwrite(fds[0], body, 0)
        socket.send_fds(pair.theirs, [encode_message(Large(len(body)))], fds)
        await pair.next()
        assert pair.heard == [Notice("x" * 300_000)]
        os.close(fds[0])

    with_pair(test)


def test_a_hub_that_does_not_read_never_blocks_the_door() -> None:
    async def test(pair: Pair) -> None:
        for number in range(2000):
            pair.pair.tell(Stop(f"{number} " + "x" * 1000))
        for number in range(2000):
            message, _ = await pair.receive()
            assert isinstance(message, Stop) and message.reason.startswith(f"{number} ")

    with_pair(test)


def test_a_hub_that_ends_with_our_words_unread_is_still_heard_to_the_end() -> None:
    """The kernel reports the reset first, and what the hub had said behind it."""

    async def test(pair: Pair) -> None:
        pair.pair.tell(Stop("unread"))
        pair.say(Notice("my last word"))
        pair.theirs.close()
        while not pair.ended:
            await pair.next()
        assert (pair.heard, pair.ended) == ([Notice("my last word")], [""])

    with_pair(test)


def test_the_end_of_the_pair_is_told_once_and_later_words_go_nowhere() -> None:
    async def test(pair: Pair) -> None:
        pair.theirs.close()
        await pair.next()
        pair.pair.tell(Stop("late"))
        near, far = socket.socketpair()
        assert not pair.pair.pass_on(far, b"", "a")
        near.close()
        far.close()
        assert pair.ended == [""]

    with_pair(test)


def test_a_message_that_cannot_be_read_ends_the_pair_with_a_reason() -> None:
    async def test(pair: Pair) -> None:
        pair.theirs.send(b'{"type": "nonsense"}')
        await pair.next()
        assert "nonsense" in pair.ended[0]

    with_pair(test)

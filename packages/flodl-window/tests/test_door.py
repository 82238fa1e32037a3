"""The one port on real loopback sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from window_fleet import a_hello, dial, join
from window_house import OTHER, SALT, House, http, in_house

from flodl_window import http_door
from flodl_wire import preface
from flodl_wire.faults import Fault, Refused
from flodl_wire.join_messages import Abort, Accept, AskSchema, Beat, Bye, Hello, Log

# join links


def test_a_host_that_proves_the_salt_gets_in_and_talks() -> None:
    async def test(house: House) -> None:
        peer, answer = await join(house.port, SALT, a_hello("node-a"))
        assert isinstance(answer, Accept) and house.hellos[0].host == "node-a"
        assert house.links[0].address == "127.0.0.1"
        peer.send(Beat())
        peer.send(Log(["x" * 1_000_000]))
        peer.send(Bye())
        await house.until(lambda: len(house.messages) == 3)
        peer.close()
        await house.until(lambda: house.closed)
        assert house.closed == [""]

    in_house(test)


@pytest.mark.parametrize("salt", [None, OTHER])
def test_who_proves_nothing_is_turned_away_in_words(salt: bytes | None) -> None:
    async def test(house: House) -> None:
        peer = await dial(house.port, salt)
        with pytest.raises(Refused) as caught:
            await peer.receive()
        assert caught.value.code == ("no-key" if salt is None else "wrong-key")
        await house.until(lambda: house.complaints)
        assert "turned away a connection from 127.0.0.1" in house.complaints[0]
        assert not house.hellos and not house.closed
        peer.close()

    in_house(test)


def test_an_open_door_takes_both() -> None:
    async def test(house: House) -> None:
        for salt in (None, SALT):
            peer, answer = await join(house.port, salt, a_hello("a"))
            assert isinstance(answer, Accept)
            peer.close()
        assert [link.keyed for link in house.links] == [False, True]

    in_house(test, openly=True)


def test_another_protocol_version_is_told_both_versions() -> None:
    async def test(house: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
        writer.write(preface.MAGIC + bytes((0, 9, preface.JOIN, 1)) + bytes(48))
        answer = await reader.read()
        assert preface.is_refusal(answer)
        assert (
            "protocol 1, this side 1" in str(preface.refusal_fault(answer, "join"))
            or answer[7] == preface.REASON_VERSION
        )
        writer.close()

    in_house(test)


def test_a_host_may_not_speak_before_its_hello_nor_say_it_twice() -> None:
    async def test(house: House) -> None:
        early = await dial(house.port, SALT)
        early.send(Beat())
        assert await early.receive() is None
        early.close()
        twice, _ = await join(house.port, SALT, a_hello("a"))
        twice.send(a_hello("a"))
        assert await twice.receive() is None
        twice.close()
        await house.until(lambda: house.closed)
        assert "twice" in house.closed[0]

    in_house(test)


def test_a_stranger_at_an_open_door_may_not_say_much() -> None:
    async def test(house: House) -> None:
        peer = await dial(house.port, None)
        peer.send(Hello("a", "x" * 100_000, []))
        with contextlib.suppress(Fault):
            assert await peer.receive() is None
        assert not house.hellos
        peer.close()

    in_house(test, openly=True)


# relay and store


@pytest.mark.parametrize("kind", [preface.RELAY, preface.STORE])
def test_relay_and_store_connections_are_handed_to_the_hub_with_what_was_read(kind: int) -> None:
    async def test(house: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
        head = preface.Preface(kind).encode() + b"m" * 48
        for at in range(0, len(head), 5):  # dripped
            writer.write(head[at : at + 5])
            await writer.drain()
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.002)
        assert await reader.readexactly(16) == b"the hub was here"
        got, address = house.passed[0]
        assert got + house.copies[0].recv(100) == head and len(got) >= 8 and address == "127.0.0.1"
        writer.close()

    in_house(test)


def test_a_hub_with_too_many_in_hand_means_busy_not_silence() -> None:
    async def test(house: House) -> None:
        house.busy = True
        reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
        writer.write(preface.Preface(preface.RELAY).encode() + b"m" * 48)
        answer = b""
        try:
            answer = await reader.read()
        except ConnectionError:
            pass
        assert answer == preface.encode_refusal(preface.REASON_BUSY)
        writer.close()

    in_house(test)


# strangers


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00", b"\0" * 64, b"SSH-2.0-scan\r\n", b"lower case\r\n\r\n", b"\xf1\x0dxx"]
)
def test_garbage_is_closed_with_one_line_for_many(garbage: bytes) -> None:
    async def test(house: House) -> None:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
            writer.write(garbage)
            try:
                await reader.read()
            except ConnectionError:
                pass
            writer.close()
        peer, answer = await join(house.port, SALT, a_hello("a"))
        assert isinstance(answer, Accept) and len(house.complaints) == 1
        peer.close()

    in_house(test)


def test_a_port_scan_that_says_nothing_is_not_worth_a_line() -> None:
    async def test(house: House) -> None:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", house.port)
            writer.close()
        _, _, body = await http(house, b"GET / HTTP/1.1\r\n\r\n")
        assert body == house.state and not house.complaints

    in_house(test)


def test_who_says_nothing_is_closed_in_time() -> None:
    async def test(house: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
        handshaken = await dial(house.port, SALT)
        assert await reader.read() == b""
        assert await handshaken.receive() is None, "a handshake without a hello is a stranger too"
        writer.close()
        handshaken.close()

    in_house(test, preface_s=0.2)


def test_a_member_outlives_the_strangers_deadline() -> None:
    async def test(house: House) -> None:
        peer, _ = await join(house.port, SALT, a_hello("a"))
        reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
        await reader.read()  # a silent stranger's deadline has passed
        peer.send(Beat())
        await house.until(lambda: house.messages)
        writer.close()
        peer.close()

    in_house(test, preface_s=0.2)


def test_a_flood_of_strangers_keeps_nobody_out() -> None:
    async def test(house: House) -> None:
        member, _ = await join(house.port, SALT, a_hello("member"))
        flood = [await asyncio.open_connection("127.0.0.1", house.port) for _ in range(50)]
        late, answer = await join(house.port, SALT, a_hello("late"))
        assert isinstance(answer, Accept)
        member.send(Beat())
        await house.until(lambda: house.messages)
        assert await flood[0][0].read() == b"", "the longest-waiting made room"
        for _, writer in flood:
            writer.close()
        member.close()
        late.close()

    in_house(test, strangers=8)


# HTTP


def test_the_state_is_served_under_both_names_and_the_connection_ends() -> None:
    async def test(house: House) -> None:
        for path in (b"/", b"/state.json", b"/state.json?x=1"):
            status, headers, body = await http(house, b"GET " + path + b" HTTP/1.1\r\nHost: anything\r\n\r\n")
            assert (status, body) == (200, house.state)
            assert headers["content-type"] == "application/json" and headers["connection"] == "close"
            assert int(headers["content-length"]) == len(body) and headers["cache-control"] == "no-cache"
        status, headers, body = await http(house, b"HEAD /state.json HTTP/1.0\r\n\r\n")
        assert (status, body, headers["content-length"]) == (200, b"", str(len(house.state or b"")))

    in_house(test)


@pytest.mark.parametrize(
    ("request_head", "status", "words"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404, "/state.json"),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405, "GET"),
        (b"GET /start HTTP/1.1\r\n\r\n", 405, "POST"),
        (b"POST /state.json HTTP/1.1\r\n\r\n", 405, "GET"),
        (b"GET /\r\n\r\n", 400, "request line"),
        (b"GET / HTTP/1.1\r\nbad\r\n\r\n", 400, "header"),
        (b"GET / HTTP/1.1\r\nOrigin: http://evil\r\n\r\n", 403, "web pages"),
        (b"GET / HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403, "web pages"),
        (b"POST /start HTTP/1.1\r\nHost: localhost:1337\r\n\r\n", 409, "no switch"),
        (b"POST /start HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "another box"),
        (b"POST /start HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n", 403, "web pages"),
        (b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 100_000, 413, "body"),
        (b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400, "number"),
        (b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 20_000, 431, "longer"),
    ],
)
def test_everything_else_is_answered_in_json(request_head: bytes, status: int, words: str) -> None:
    async def test(house: House) -> None:
        got, headers, body = await http(house, request_head)
        assert got == status and words in json.loads(body)["error"] and headers["connection"] == "close"

    in_house(test)


def test_nothing_to_tell_yet_is_503() -> None:
    async def test(house: House) -> None:
        house.state = None
        assert (await http(house, b"GET / HTTP/1.1\r\n\r\n"))[0] == 503

    in_house(test)


def test_half_a_request_is_answered_when_patience_ends() -> None:
    async def test(house: House) -> None:
        status, _, _ = await http(house, b"GET / HT")
        assert status == 408

    in_house(test, http_s=0.2)


LONG = 64 << 20  # bytes: more than any kernel keeps of a connection


async def begin_a_long_answer(house: House) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Its head has been read."""
    house.state = bytes(LONG)
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def test_a_long_answer_that_is_read_slowly_outlasts_the_doors_patience_with_requests() -> None:
    async def test(house: House) -> None:
        reader, writer = await begin_a_long_answer(house)
        assert (await http(house, b"GET / HT"))[0] == 408, "that patience has ended meanwhile"
        assert len(await reader.readexactly(LONG)) == LONG and await reader.read() == b""
        writer.close()

    in_house(test, http_s=0.2)


def test_a_long_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_door, "LINGER", 0.05)
    monkeypatch.setattr(http_door, "STUCK_S", 0.2)
    given_up = asyncio.Event()
    lost = http_door.HttpConnection.connection_lost

    def tell(self: http_door.HttpConnection, exc: Exception | None) -> None:
        lost(self, exc)
        given_up.set()

    monkeypatch.setattr(http_door.HttpConnection, "connection_lost", tell)

    async def test(house: House) -> None:
        reader, writer = await begin_a_long_answer(house)
        await given_up.wait()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(LONG)
        writer.close()

    in_house(test)


@pytest.mark.parametrize("ends", ["it is its turn", "the link is shut"])
def test_nothing_overtakes_a_letter_that_waits_for_its_turn(ends: str) -> None:
    async def test(house: House) -> None:
        peer, _ = await join(house.port, SALT, a_hello("one"))
        (link,) = house.links
        link.put_off(AskSchema())
        link.send(Abort("first"))
        link.put_off(Abort("second"))
        link.send_put_off() if ends == "it is its turn" else link.shut()
        told = [await peer.receive() for _ in range(3)]
        assert [type(message) for message in told] == [AskSchema, Abort, Abort]
        assert [message.reason for message in told[1:]] == ["first", "second"]
        peer.close()

    in_house(test)


def test_a_crowd_is_let_in_and_a_reader_between_them() -> None:
    async def test(house: House) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        crowd = [asyncio.ensure_future(join(house.port, SALT, a_hello(f"h{at}"))) for at in range(200)]
        status, _, _ = await http(house, b"GET / HTTP/1.1\r\n\r\n")
        assert status == 200
        came = await asyncio.gather(*crowd)
        for peer, answer in came:
            assert isinstance(answer, Accept)
            peer.close()
        await house.until(lambda: len(house.closed) == 200)
        assert loop.time() - began < 10

    in_house(test)

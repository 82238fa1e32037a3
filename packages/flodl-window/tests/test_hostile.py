"""Those who mean ill at the one port: replays, tampering, old versions, wrong tokens. Refused, logged once, and nobody
else notices.
"""

from __future__ import annotations

import asyncio
import contextlib

from window_fleet import Peer, a_hello, dial, join
from window_house import OTHER, SALT, House, in_house

from flodl_wire import frames, preface
from flodl_wire.channel import Initiator
from flodl_wire.faults import Fault
from flodl_wire.join_messages import Accept, Beat
from flodl_wire.messages import encode_message


async def raw(house: House, data: bytes) -> bytes:
    """What comes back for `data` before the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    writer.write(data)
    answer = b""
    with contextlib.suppress(ConnectionError):
        answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


async def undisturbed(house: House, member: Peer) -> None:
    """A member that joined before is still heard."""
    before = len(house.messages)
    member.send(Beat())
    await house.until(lambda: len(house.messages) > before)
    assert not house.closed


def test_a_replayed_conversation_is_worth_nothing() -> None:
    async def test(house: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
        channel = Initiator(preface.JOIN, SALT)
        sent = channel.data_to_send()
        writer.write(sent)
        channel.receive_data(await reader.readexactly(48))
        channel.send(frames.MESSAGE, encode_message(a_hello("node-a")))
        sealed = channel.data_to_send()
        writer.write(sealed)
        await house.until(lambda: house.hellos)
        member = Peer(reader, writer, channel)
        answer = await raw(house, sent + sealed)
        assert len(answer) in (0, 48), "at most the handshake is answered: its keys are new, the records do not open"
        await house.until(lambda: house.complaints)
        assert len(house.hellos) == 1
        await undisturbed(house, member)
        writer.close()

    in_house(test)


def test_a_replayed_handshake_that_goes_no_further_waits_out_the_doors_patience() -> None:
    async def test(house: House) -> None:
        assert len(await raw(house, Initiator(preface.JOIN, SALT).data_to_send())) == 48
        await house.until(lambda: house.complaints)
        assert "no hello in time" in house.complaints[0] and not house.hellos

    in_house(test, preface_s=0.2)


def test_a_tampered_record_ends_its_own_link_and_no_other() -> None:
    async def test(house: House) -> None:
        member, _ = await join(house.port, SALT, a_hello("good"))
        victim, answer = await join(house.port, SALT, a_hello("victim"))
        assert isinstance(answer, Accept)
        victim.channel.send(frames.MESSAGE, encode_message(Beat()))
        data = bytearray(victim.channel.data_to_send())
        data[-1] ^= 1
        victim.writer.write(data)
        with contextlib.suppress(Fault):
            assert await victim.receive() is None
        await house.until(lambda: house.closed)
        assert len(house.closed) == 1 and house.closed[0], "the owner is told why"
        house.closed.clear()
        await undisturbed(house, member)
        for peer in (member, victim):
            peer.close()

    in_house(test)


def test_a_tampered_handshake_is_refused_like_a_wrong_token() -> None:
    async def test(house: House) -> None:
        data = bytearray(Initiator(preface.JOIN, SALT).data_to_send())
        data[-1] ^= 1
        assert (await raw(house, bytes(data)))[6:] == bytes((0, preface.REASON_KEY))
        await house.until(lambda: house.refused)
        assert house.refused == [("127.0.0.1", "wrong-key")]

    in_house(test)


def test_wrong_tokens_and_old_versions_are_logged_now_and_then_and_listed_each_time() -> None:
    async def test(house: House) -> None:
        member, _ = await join(house.port, SALT, a_hello("good"))
        old = preface.MAGIC + bytes((0, 0, preface.JOIN, 1)) + bytes(48)
        for _ in range(20):
            stranger = await dial(house.port, OTHER)
            with contextlib.suppress(Fault):
                await stranger.receive()
            stranger.close()
            await stranger.writer.wait_closed()
            answer = await raw(house, old)
            assert preface.is_refusal(answer) and answer[7] == preface.REASON_VERSION
        await house.until(lambda: len(house.refused) == 40)
        assert {code for _, code in house.refused} == {"wrong-key", "other-version"}
        assert len(house.complaints) == 1, "one line in five seconds"
        await undisturbed(house, member)
        member.close()

    in_house(test)


def test_what_speaks_another_language_is_not_worth_listing() -> None:
    async def test(house: House) -> None:
        await raw(house, b"SSH-2.0-OpenSSH_9.2\r\n")
        await raw(house, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))
        await house.until(lambda: house.complaints)
        assert not house.refused

    in_house(test)


def test_a_link_that_does_not_read_is_dropped_before_it_costs_much() -> None:
    from window_house import JoinLink

    from flodl_window import join_link
    from flodl_wire.join_messages import Echoed

    async def test(house: House) -> None:
        peer, _ = await join(house.port, SALT, a_hello("rehearsal"))
        link: JoinLink = house.links[0]
        for number in range(2 * join_link.MAX_UNREAD // (1 << 20)):
            link.send(Echoed(number, "x" * (1 << 20)))
        await house.until(lambda: house.closed)
        assert "does not read" in house.closed[0]
        peer.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await peer.writer.wait_closed()

    in_house(test)

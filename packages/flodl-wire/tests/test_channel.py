"""The sealed channel: two ends joined by bytes, whole, cut, changed, or never answered (W-10 to W-16, N rules)."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_wire import channel, frames, noise, preface
from flodl_wire.channel import Channel, Initiator, Responder
from flodl_wire.faults import Broken, Fault, Refused, Transient
from flodl_wire.frames import CHUNK, CHUNK_HEAD, MESSAGE, STORE, ChunkHead, Frame

SALT = bytes(range(16))
OTHER = bytes(range(1, 17))


def pair(kind: int = preface.RELAY, cipher: str | None = None) -> tuple[Initiator, Responder]:
    """Both ends, established."""
    dialler, acceptor = Initiator(kind, SALT, cipher), Responder(lambda keyed: SALT, max_message=frames.LIMITS[MESSAGE])
    assert acceptor.receive_data(dialler.data_to_send()) == []
    assert dialler.receive_data(acceptor.data_to_send()) == []
    assert dialler.established
    assert acceptor.established
    return dialler, acceptor


def wire(sender: Channel, kind: int, *buffers: frames.Buffer) -> bytes:
    return b"".join([bytes(records) for records in sender.sealed(kind, *buffers)])


def plain(found: list[Frame]) -> list[tuple[int, bytes]]:
    return [(frame.kind, bytes(frame.body)) for frame in found]


@pytest.mark.parametrize("cipher", [noise.AES, noise.CHACHA])
@pytest.mark.parametrize("kind", sorted(preface.KINDS))
def test_both_ends_agree_and_understand_each_other(cipher: str, kind: int) -> None:
    dialler, acceptor = pair(kind, cipher)
    assert acceptor.kind == kind
    assert dialler.handshake_hash == acceptor.handshake_hash != b""
    for sender, receiver in ((dialler, acceptor), (acceptor, dialler)):
        sender.send(MESSAGE, b'{"type":', b'"beat"}')
        sender.send(MESSAGE, b"")
        assert plain(receiver.receive_data(sender.data_to_send())) == [(MESSAGE, b'{"type":"beat"}'), (MESSAGE, b"")]
        receiver.receive_eof()


def test_what_is_sent_before_the_handshake_goes_out_after_it() -> None:
    dialler, acceptor = Initiator(preface.JOIN, SALT), Responder(lambda keyed: SALT)
    dialler.send(MESSAGE, b"hello")
    first = dialler.data_to_send()
    assert len(first) == preface.LENGTH + noise.MESSAGE
    acceptor.send(MESSAGE, b"early")
    acceptor.receive_data(first)
    assert not acceptor.proven  # a first message could be a replay; a record could not
    answer = acceptor.data_to_send()
    assert plain(dialler.receive_data(answer)) == [(MESSAGE, b"early")]
    assert plain(acceptor.receive_data(dialler.data_to_send())) == [(MESSAGE, b"hello")]
    assert (acceptor.proven, dialler.proven) == (True, True)


def test_an_open_door_takes_both_and_a_closed_one_only_who_proves_the_salt() -> None:
    def opened(keyed: bool) -> bytes | None:
        return SALT if keyed else None

    for salt in (SALT, None):
        dialler, acceptor = Initiator(preface.JOIN, salt), Responder(opened)
        acceptor.receive_data(dialler.data_to_send())
        dialler.receive_data(acceptor.data_to_send())
        assert dialler.established


def turned_away(dialler: Initiator, acceptor: Responder) -> tuple[Fault, Fault]:
    """What each end says when the acceptor refuses."""
    with pytest.raises(Fault) as here:
        acceptor.receive_data(dialler.data_to_send())
    refusal = acceptor.data_to_send()
    assert len(refusal) == preface.LENGTH
    with pytest.raises(Fault) as again:
        acceptor.receive_data(b"more")
    assert again.value is here.value
    assert dialler.receive_data(refusal) == []
    with pytest.raises(Fault) as there:
        dialler.receive_eof()
    return here.value, there.value


@pytest.mark.parametrize(("ours", "theirs"), [(OTHER, SALT), (SALT, None)])
def test_another_salt_is_named_on_both_sides(ours: bytes, theirs: bytes | None) -> None:
    here, there = turned_away(Initiator(preface.JOIN, ours), Responder(lambda keyed: theirs))
    for fault in (here, there):
        assert isinstance(fault, Refused)
        assert str(fault) == "cannot open the join channel: the other side holds another salt or token"
        assert fault.fix == "check that both belong to the same run: its token, its address and its port"


def test_no_salt_at_a_closed_door_is_named_on_both_sides() -> None:
    here, there = turned_away(Initiator(preface.JOIN, None), Responder(lambda keyed: SALT))
    assert here.why == "the other side proves no salt or token, and this door wants one"
    assert there.why == "the other side wants a salt or token and this side has none"
    assert there.fix == "pass the run's token: --token <32 hex>"


def test_a_channel_that_is_not_served_is_named_on_both_sides() -> None:
    here, there = turned_away(Initiator(preface.STORE, SALT), Responder(lambda keyed: SALT, kinds=(preface.JOIN,)))
    assert str(here) == "cannot open the store channel: it is not served here"
    assert str(there) == "cannot open the store channel: the other side does not serve it (now)"


def test_another_protocol_version_is_named_on_both_sides() -> None:
    dialler, acceptor = Initiator(preface.JOIN, SALT), Responder(lambda keyed: SALT)
    first = bytearray(dialler.data_to_send())
    first[5] = 2
    with pytest.raises(Refused, match="the other side speaks flodl protocol 2, this side 1"):
        acceptor.receive_data(first)
    dialler.receive_data(acceptor.data_to_send())
    with pytest.raises(Refused, match="flodl protocol 1, this side 1") as there:  # the dialler here is of version 1 too
        dialler.receive_eof()
    assert "pip install --upgrade flodl-" in there.value.fix


@pytest.mark.parametrize("data", [b"G", b"GET /state.json HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"\xf1\x0d\x1f\xd0"])
def test_a_stranger_is_dropped_at_its_first_wrong_byte_and_gets_no_answer(data: bytes) -> None:
    acceptor = Responder(lambda keyed: SALT)
    with pytest.raises(Refused, match="it does not start like a flodl channel"):
        acceptor.receive_data(data)
    assert acceptor.data_to_send() == b""


def test_a_changed_preface_breaks_the_handshake() -> None:
    """It is the handshake's prologue: nobody on the road can turn a relay channel into a join channel."""
    dialler, acceptor = Initiator(preface.RELAY, SALT), Responder(lambda keyed: SALT)
    first = bytearray(dialler.data_to_send())
    first[6] = preface.JOIN
    with pytest.raises(Refused, match="another salt or token"):
        acceptor.receive_data(first)


def test_a_dialler_that_goes_on_unanswered_is_refused() -> None:
    dialler, acceptor = Initiator(preface.RELAY, SALT), Responder(lambda keyed: SALT)
    with pytest.raises(Broken, match="the dialler went on before it was answered"):
        acceptor.receive_data(dialler.data_to_send() + b"x")


def test_an_acceptor_without_the_salt_is_found_out() -> None:
    dialler = Initiator(preface.JOIN, SALT)
    dialler.data_to_send()
    with pytest.raises(Refused, match="something answers there that is not flodl, or the road changes what it carries"):
        dialler.receive_data(Initiator(preface.JOIN, OTHER).data_to_send()[preface.LENGTH :])


@pytest.mark.parametrize(
    "answer, seen",
    [
        (b"220 mail.example ESMTP\r\n".ljust(48, b"."), "'220 mail.example ESMTP'"),
        (b"HTTP/1.1 400 Bad Request\r\nServer: nginx/1.22.1\r\n\r\n<html>", "'HTTP/1.1 400 Bad Request'"),
    ],
)
def test_another_program_that_answers_is_told_by_its_greeting(answer: bytes, seen: str) -> None:
    dialler = Initiator(preface.JOIN, SALT)
    dialler.data_to_send()
    with pytest.raises(Refused) as caught:
        dialler.receive_data(answer)
    assert caught.value.code == "not-flodl" and f"not flodl (it says {seen})" in caught.value.why


def test_a_replayed_first_message_never_proves_anything() -> None:
    recorded = Initiator(preface.JOIN, SALT).data_to_send()
    acceptor = Responder(lambda keyed: SALT)
    acceptor.receive_data(recorded)
    assert acceptor.established
    assert not acceptor.proven
    with pytest.raises(Broken, match="record 0 has a wrong tag"):
        acceptor.receive_data(b"\x00\x20" + bytes(32))
    assert not acceptor.proven


@given(st.data())
def test_a_changed_bit_anywhere_after_the_handshake_is_found(data: st.DataObject) -> None:
    dialler, acceptor = pair()
    stream = bytearray(wire(dialler, MESSAGE, bytes(200)) + wire(dialler, MESSAGE, bytes(10)))
    position = data.draw(st.integers(0, len(stream) - 1))
    stream[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Broken):
        acceptor.receive_data(stream)
        acceptor.receive_eof()


def test_records_swapped_repeated_or_dropped_are_found() -> None:
    for order in ((1, 0), (0, 0), (1,)):
        dialler, acceptor = pair()
        records = [wire(dialler, MESSAGE, b"one"), wire(dialler, MESSAGE, b"two")]
        with pytest.raises(Broken, match="it was changed, dropped or repeated on the road"):
            for number in order:
                acceptor.receive_data(records[number])


@pytest.mark.parametrize("keep", [1, 2, 30, -1])
def test_an_end_inside_a_record_is_a_truncation(keep: int) -> None:
    dialler, acceptor = pair()
    acceptor.receive_data(wire(dialler, MESSAGE, b"whole") + wire(dialler, MESSAGE, bytes(20))[:keep])
    with pytest.raises(Broken, match="the connection ended inside a record or frame"):
        acceptor.receive_eof()


def test_an_end_between_the_records_of_one_frame_is_a_truncation() -> None:
    dialler, acceptor = pair()
    stream = wire(dialler, CHUNK, CHUNK_HEAD.pack(1, 0, 0), bytes(100_000))
    acceptor.receive_data(stream[: 2 + frames.HEAD.size + CHUNK_HEAD.size + noise.TAG])
    with pytest.raises(Broken, match="the connection ended inside a record or frame"):
        acceptor.receive_eof()


@pytest.mark.parametrize("end", [0, 5, 8, 30])
def test_a_close_during_the_handshake_is_transient(end: int) -> None:
    dialler, acceptor = Initiator(preface.JOIN, SALT), Responder(lambda keyed: SALT)
    acceptor.receive_data(dialler.data_to_send()[:end])
    with pytest.raises(Transient, match="the dialler closed the connection during the handshake"):
        acceptor.receive_eof()
    with pytest.raises(Transient, match="the other side closed the connection during the handshake"):
        dialler.receive_eof()


def test_an_empty_record_is_refused() -> None:
    _, acceptor = pair()
    with pytest.raises(Broken, match="a record of 16 bytes carries nothing"):
        acceptor.receive_data(b"\x00\x10")


def test_a_channel_carries_only_its_own_kinds_of_frames() -> None:
    dialler, acceptor = pair(preface.JOIN)
    with pytest.raises(Broken, match=r"kind 3 \(store\) does not belong on this channel"):
        acceptor.receive_data(wire(dialler, STORE, b"x"))


def test_a_stranger_gets_little_memory_until_it_is_trusted() -> None:
    dialler, acceptor = Initiator(preface.JOIN, None), Responder(lambda keyed: None)
    assert len(acceptor.get_buffer()) <= 1024
    acceptor.receive_data(dialler.data_to_send())
    dialler.receive_data(acceptor.data_to_send())
    acceptor.receive_data(b"\xff\xff" + bytes(60_000))  # claims the longest record and does not finish it
    assert len(acceptor.get_buffer()) <= channel.RECORD
    dialler, acceptor = Initiator(preface.JOIN, None), Responder(lambda keyed: None)
    acceptor.receive_data(dialler.data_to_send())
    dialler.receive_data(acceptor.data_to_send())
    with pytest.raises(Broken, match="a message frame of 65537 bytes; 65536 are allowed"):
        acceptor.receive_data(wire(dialler, MESSAGE, bytes(65_537)))


@pytest.mark.parametrize("salt", [SALT, None])
def test_a_dialler_that_proved_the_salt_or_was_admitted_may_send_long_messages(salt: bytes | None) -> None:
    dialler, acceptor = Initiator(preface.JOIN, salt), Responder(lambda keyed: salt)
    acceptor.receive_data(dialler.data_to_send())
    dialler.receive_data(acceptor.data_to_send())
    if salt is None:
        acceptor.max_message = frames.LIMITS[MESSAGE]
    assert acceptor.max_message == 16 * frames.MIB
    body = os.urandom(16 * frames.MIB)
    assert plain(acceptor.receive_data(wire(dialler, MESSAGE, body))) == [(MESSAGE, body)]


SIZES = st.integers(0, 300) | st.sampled_from([4095, 4096, 65_518, 65_519, 65_520, 131_038, 200_000, frames.MIB])


@settings(deadline=None, max_examples=40)
@given(st.lists(SIZES, min_size=1, max_size=5), st.sampled_from([1, 7, 1000, 65_537, 1 << 20]), st.booleans())
def test_any_sizes_and_cuts_give_the_same_frames(sizes: list[int], cut: int, placed: bool) -> None:
    target = memoryview(bytearray(frames.MIB))
    dialler, acceptor = pair()
    if placed:
        acceptor.decoder.place = lambda head, length: target[:length]
    stream, sent = b"", []
    for number, size in enumerate(sizes):
        body = bytes([number + 1]) * size
        stream += wire(dialler, CHUNK, CHUNK_HEAD.pack(number, 0, size), memoryview(body))
        sent.append((ChunkHead(number, 0, size), body))
    cuts = [*range(0, len(stream) if cut >= 1000 else 5000, cut), len(stream)]  # small cuts at the start are enough
    found: list[tuple[ChunkHead | None, bytes]] = []
    for start, end in itertools.pairwise(cuts):
        for frame in acceptor.receive_data(stream[start:end]):
            found.append((frame.head, bytes(frame.body) if not placed else sent[len(found)][1]))
    assert found == sent
    acceptor.receive_eof()


def test_large_buffers_are_sealed_where_they_lie_and_opened_where_they_belong() -> None:
    dialler, acceptor = pair()
    source, target = memoryview(os.urandom(frames.MIB)), bytearray(frames.MIB)
    acceptor.decoder.place = lambda head, length: memoryview(target)[head.offset : head.offset + length]
    steps = [bytes(step) for step in dialler.sealed(CHUNK, CHUNK_HEAD.pack(1, 0, 0), source)]
    assert max(map(len, steps)) <= channel.BATCH
    assert len(steps[0]) > 65_537
    found = [frame for step in steps for frame in acceptor.receive_data(step)]
    assert len(found) == 1 and target == source
    assert isinstance(found[0].body, memoryview) and found[0].body.obj is target


def test_a_blocking_shell_sends_and_receives_in_two_threads_at_once() -> None:
    """The shell that the planes write, whole: handshake, one sending thread, one receiving thread, at either end."""
    count, blob = 40, os.urandom(300_000)
    left, right = socket.socketpair()

    def open_channel(sock: socket.socket, end: Channel) -> None:
        while True:
            sock.sendall(end.data_to_send())
            if end.established:
                return
            data = sock.recv(4096)
            if not data:
                end.receive_eof()
            assert end.receive_data(data) == []

    def sending(sock: socket.socket, end: Channel) -> None:
        for number in range(count):
            for records in end.sealed(CHUNK, CHUNK_HEAD.pack(number, 0, 0), memoryview(blob)):
                sock.sendall(records)
        sock.shutdown(socket.SHUT_WR)

    def receiving(sock: socket.socket, end: Channel) -> Iterator[Frame]:
        while size := sock.recv_into(end.get_buffer()):
            yield from end.buffer_updated(size)
        end.receive_eof()

    seen: dict[str, list[int]] = {}

    def side(name: str, sock: socket.socket, end: Channel) -> None:
        open_channel(sock, end)
        sender = threading.Thread(target=sending, args=(sock, end))
        sender.start()
        seen[name] = [frame.head.round for frame in receiving(sock, end) if frame.head and frame.body == blob]
        sender.join()

    other = threading.Thread(target=side, args=("right", right, Responder(lambda keyed: SALT)))
    other.start()
    side("left", left, Initiator(preface.RELAY, SALT))
    other.join()
    left.close()
    right.close()
    assert seen == {"left": list(range(count)), "right": list(range(count))}


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "z" * 32, " " + "0" * 31, "0" * 30 + "  "])
def test_a_bad_salt_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(Refused) as caught:
        channel.parse_salt(text, "--token")
    assert str(caught.value) == "cannot use --token: it must be 32 hex digits"


def test_a_salt_is_32_hex_digits() -> None:
    assert channel.parse_salt("000102030405060708090A0b0c0d0e0f", "x") == SALT


def test_the_cipher_is_one_of_the_two() -> None:
    assert channel.hardware_cipher() in (noise.AES, noise.CHACHA)


@given(st.binary(max_size=300), st.sampled_from([0, 4, 8, 56]), st.integers(1, 300))
def test_any_bytes_at_the_door_are_a_fault_or_wait_for_more(noise_bytes: bytes, good: int, cut: int) -> None:
    """Nothing a stranger sends can raise anything but a Fault, at any point of the handshake."""
    acceptor = Responder(lambda keyed: SALT)
    stream = Initiator(preface.JOIN, SALT).data_to_send()[:good] + noise_bytes
    try:
        for start in range(0, len(stream), cut):
            assert acceptor.receive_data(stream[start : start + cut]) == []
        acceptor.receive_eof()
    except Fault:
        pass
    assert not acceptor.proven


def test_a_degenerate_key_in_the_first_message_is_refused() -> None:
    """Only who holds the salt can make such a message pass its tag; it then fails at the shared secret."""
    dialler = noise.Handshake(
        initiator=True, prologue=preface.Preface(preface.JOIN).encode(), psk=noise.psk_of(SALT), ephemeral=bytes(32)
    )
    dialler._private = _Degenerate()  # type: ignore[assignment]
    acceptor = Responder(lambda keyed: SALT)
    with pytest.raises(Broken, match="the other side's key is degenerate"):
        acceptor.receive_data(preface.Preface(preface.JOIN).encode() + dialler.write())


class _Degenerate:
    """A private key whose public half is the all-zero point."""

    def public_key(self) -> _Degenerate:
        return self

    def public_bytes_raw(self) -> bytes:
        return bytes(32)

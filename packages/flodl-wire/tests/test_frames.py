"""Frames: whatever way the bytes are cut, the same frames come out, within the limits (W-20 to W-27)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import frames
from flodl_wire.faults import Broken
from flodl_wire.frames import CHUNK, MESSAGE, STORE, ChunkHead, Frame, FrameDecoder

HEADS = st.builds(ChunkHead, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
FRAMES = st.one_of(
    st.builds(lambda body: Frame(MESSAGE, body), st.binary(max_size=300)),
    st.builds(lambda body: Frame(STORE, body), st.binary(max_size=300)),
    st.builds(lambda body, head: Frame(CHUNK, body, head), st.binary(max_size=300), HEADS),
)


def encode(frame: Frame) -> bytes:
    if frame.head:
        return frames.chunk_head(*frame.head, length=len(frame.body)) + bytes(frame.body)
    return frames.encode_frame(frame.kind, frame.body)


def plain(found: list[Frame]) -> list[Frame]:
    return [frame._replace(body=bytes(frame.body)) for frame in found]


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(1, 64), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(map(encode, sent))
    decoder, found, position, turn = FrameDecoder(), [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        found += decoder.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert plain(found) == sent
    assert decoder.at_boundary


@given(FRAMES, st.data())
def test_an_end_inside_a_frame_is_no_boundary(frame: Frame, data: st.DataObject) -> None:
    stream = encode(frame)
    decoder = FrameDecoder()
    assert decoder.feed(stream[: data.draw(st.integers(1, len(stream) - 1))]) == []
    assert not decoder.at_boundary


@given(st.binary(max_size=400))
def test_any_bytes_give_frames_or_a_fault_and_never_much_memory(stream: bytes) -> None:
    decoder = FrameDecoder(max_message=100)
    try:
        decoder.feed(stream)
    except Broken:
        return
    assert len(decoder.space()) <= frames.LIMITS[CHUNK]


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        (frames.HEAD.pack(16 * frames.MIB + 1, MESSAGE), "a message frame of 16777217 bytes; 16777216 are allowed"),
        (frames.HEAD.pack(frames.MIB + 17, CHUNK), "a chunk frame of 1048593 bytes; 1048592 are allowed"),
        (frames.HEAD.pack(2**32 - 1, STORE), "a store frame of 4294967295 bytes; 1048576 are allowed"),
        (frames.HEAD.pack(1, 9), "kind 9 (unknown) does not belong on this channel"),
        (frames.HEAD.pack(15, CHUNK), "a chunk of 15 bytes has no room for its head"),
    ],
)
def test_a_bad_head_is_refused_before_a_byte_of_its_body_is_kept(head: bytes, sentence: str) -> None:
    decoder = FrameDecoder()
    with pytest.raises(Broken) as caught:
        decoder.feed(head)
    assert str(caught.value) == f"cannot read a frame: {sentence}"
    assert len(decoder.space()) == 0


def test_a_kind_that_the_channel_does_not_carry_is_refused() -> None:
    with pytest.raises(Broken, match=r"kind 2 \(chunk\) does not belong on this channel"):
        FrameDecoder({MESSAGE}).feed(frames.chunk_head(1, 0, 0, 4))


def test_the_limit_of_messages_can_be_raised_when_the_other_side_is_trusted() -> None:
    decoder = FrameDecoder(max_message=10)
    with pytest.raises(Broken, match="a message frame of 11 bytes; 10 are allowed"):
        decoder.feed(frames.encode_frame(MESSAGE, bytes(11)))
    decoder = FrameDecoder(max_message=10)
    decoder.max_message = 11
    assert len(decoder.feed(frames.encode_frame(MESSAGE, bytes(11)))) == 1


def test_an_oversize_frame_is_refused_at_its_sender() -> None:
    with pytest.raises(Broken, match="cannot send a frame: a store frame of 1048577 bytes; 1048576 are allowed"):
        frames.encode_frame(STORE, bytes(frames.MIB), b"x")


def test_tensor_bytes_land_where_their_owner_wants_them() -> None:
    buffer = bytearray(64)
    asked: list[tuple[ChunkHead, int]] = []

    def place(head: ChunkHead, length: int) -> memoryview:
        asked.append((head, length))
        return memoryview(buffer)[head.offset : head.offset + length]

    decoder = FrameDecoder(place=place)
    stream = frames.chunk_head(3, 1, 8, 16) + bytes(range(16))
    assert decoder.feed(stream[:25]) == []
    room = decoder.space()  # the shell may receive the rest into it directly
    assert len(room) == 12
    room[:] = stream[25:]
    frame = decoder.advance(12)
    assert frame and frame.head == ChunkHead(3, 1, 8)
    assert asked == [(ChunkHead(3, 1, 8), 16)]
    assert buffer == bytes(8) + bytes(range(16)) + bytes(40)
    assert decoder.at_boundary and len(decoder.space()) == 0


def test_a_place_may_decline_and_a_wrong_one_is_a_bug() -> None:
    assert plain(FrameDecoder(place=lambda head, length: None).feed(frames.chunk_head(1, 0, 0, 1) + b"x")) == [
        Frame(CHUNK, b"x", ChunkHead(1, 0, 0))
    ]
    with pytest.raises(ValueError, match="place gave 2 bytes for a chunk of 1"):
        FrameDecoder(place=lambda head, length: memoryview(bytearray(2))).feed(frames.chunk_head(1, 0, 0, 1))


def test_sizes_are_counted_in_bytes_whatever_the_elements() -> None:
    floats: Any = memoryview(bytes(16)).cast("d")
    assert frames.size_of([floats, b"xy"]) == 18
    assert frames.encode_frame(STORE, floats) == frames.HEAD.pack(16, STORE) + bytes(16)

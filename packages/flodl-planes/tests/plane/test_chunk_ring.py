"""The bounded ring between a relay's socket and the averager, and the landing of an average."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from flodl_planes.hub.chunk_ring import ROOM, ChunkRing
from flodl_planes.plane.encoding import encoded_bytes
from flodl_planes.plane.landing import Landing
from flodl_planes.plane.layout import lay_out
from flodl_wire.faults import Broken
from flodl_wire.frames import ChunkHead
from flodl_wire.plane_messages import CHUNK_BYTES, TensorSpec

SLOTS = ROOM // CHUNK_BYTES
LAYOUT = lay_out([TensorSpec("w", [CHUNK_BYTES // 4 * (SLOTS + 2)], "F32", "param")])


def send(ring: ChunkRing, number: int, attempt: int = 0) -> None:
    head = ChunkHead(0, attempt, number * CHUNK_BYTES)
    ring.place(head, CHUNK_BYTES)[:1] = bytes([number])
    ring.filled(head)


def test_chunks_come_out_as_they_went_in() -> None:
    ring = ChunkRing()
    ring.expect(0, 0, LAYOUT.chunks)
    for number in range(SLOTS + 2):
        send(ring, number)
        assert ring.has(0, 0)
        assert ring.take()[0] == number
        ring.release(0, 0)
        assert not ring.has(0, 0)


def test_a_full_ring_holds_the_sender_back_until_something_is_released() -> None:
    ring = ChunkRing()
    ring.expect(0, 0, LAYOUT.chunks)
    for number in range(SLOTS):
        send(ring, number)
    late = threading.Thread(target=send, args=(ring, SLOTS), daemon=True)
    late.start()
    late.join(0.05)
    assert late.is_alive()
    ring.release(0, 0)
    late.join(10)
    assert not late.is_alive()


def test_stopping_frees_both_sides_and_what_still_comes_is_thrown_away() -> None:
    ring = ChunkRing()
    ring.expect(0, 0, LAYOUT.chunks)
    for number in range(SLOTS):
        send(ring, number)
    late = threading.Thread(target=send, args=(ring, SLOTS), daemon=True)
    late.start()
    ring.stop()
    late.join(10)
    assert not late.is_alive()
    assert not ring.has(0, 0)
    ring.expect(0, 1, LAYOUT.chunks)
    send(ring, 3, attempt=0)  # out of order, and of no interest
    send(ring, 0, attempt=1)
    ring.release(0, 0)  # a late word of the attempt before
    assert ring.has(0, 1) and not ring.has(0, 0)
    assert ring.take()[0] == 0


@pytest.mark.parametrize(("offset", "length"), [(CHUNK_BYTES, CHUNK_BYTES), (0, 10), (1, CHUNK_BYTES)])
def test_a_chunk_that_is_not_the_next_breaks_the_link(offset: int, length: int) -> None:
    ring, landing = ChunkRing(), Landing()
    ring.expect(0, 0, LAYOUT.chunks)
    landing.expect(0, 0, LAYOUT, np.empty(LAYOUT.total_bytes, np.uint8))
    for place in (ring.place, landing.place):
        with pytest.raises(Broken, match="not the next"):
            place(ChunkHead(0, 0, offset), length)


def test_many_small_encoded_chunks_find_a_slot_each() -> None:
    """One receive can complete several, and the thread that would release them is the one that places them."""
    ring = ChunkRing()
    ring.expect(0, 0, LAYOUT.chunks, "int8")
    size = encoded_bytes("int8", CHUNK_BYTES // 4)
    for number in range(len(LAYOUT.chunks)):
        ring.place(ChunkHead(0, 0, number * CHUNK_BYTES), size)[:1] = bytes([number])
    for number in range(len(LAYOUT.chunks)):
        ring.filled(ChunkHead(0, 0, number * CHUNK_BYTES))
        assert (ring.take()[0], ring.take().nbytes) == (number, size)
        ring.release(0, 0)


def test_an_average_lands_where_it_belongs_and_is_complete_with_its_last_chunk() -> None:
    landing, into = Landing(), np.zeros(LAYOUT.total_bytes, np.uint8)
    assert len(landing.place(ChunkHead(0, 0, 0), 100)) == 100  # nobody waits: nowhere
    landing.expect(7, 1, LAYOUT, into)
    landing.place(ChunkHead(7, 0, 0), CHUNK_BYTES)[:] = bytes(CHUNK_BYTES)
    landing.filled(ChunkHead(7, 0, 0))
    for number, chunk in enumerate(LAYOUT.chunks):
        assert not landing.complete(7, 1)
        head = ChunkHead(7, 1, chunk.sum_offset)
        landing.place(head, chunk.live_bytes)[:1] = bytes([number + 1])
        landing.filled(head)
    assert landing.complete(7, 1)
    np.testing.assert_array_equal(into[::CHUNK_BYTES], range(1, len(LAYOUT.chunks) + 1))
    with pytest.raises(Broken):
        landing.place(ChunkHead(7, 1, 0), CHUNK_BYTES)


def test_chunks_that_come_in_one_burst_with_their_round_are_kept_until_it_is_begun() -> None:
    landing, into = Landing(), np.zeros(LAYOUT.total_bytes, np.uint8)
    chunks = LAYOUT.chunks
    places = [landing.place(ChunkHead(0, 0, chunk.sum_offset), chunk.live_bytes) for chunk in chunks[:3]]
    landing.expect(0, 0, LAYOUT, into)  # the decoder had placed three before the Round was handled
    for number, place in enumerate(places):  # the third is filled only now
        place[:1] = bytes([number + 1])
        landing.filled(ChunkHead(0, 0, chunks[number].sum_offset))
    for number, chunk in enumerate(chunks[3:], 3):
        assert not landing.complete(0, 0)
        head = ChunkHead(0, 0, chunk.sum_offset)
        landing.place(head, chunk.live_bytes)[:1] = bytes([number + 1])
        landing.filled(head)
    assert landing.complete(0, 0)
    np.testing.assert_array_equal(into[::CHUNK_BYTES], range(1, len(chunks) + 1))


def test_early_chunks_of_a_round_that_never_begins_cost_no_more_than_a_few() -> None:
    landing = Landing()
    with pytest.raises(Broken, match="never begun"):
        for number in range(9):
            landing.place(ChunkHead(0, 0, number * CHUNK_BYTES), CHUNK_BYTES)
    landing = Landing()
    for round_number in range(9):  # a later round takes the place of one that was dropped
        landing.place(ChunkHead(round_number, 0, 0), CHUNK_BYTES)

"""Records: sealing and opening buffers in place (W-10 to W-12)."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import noise, records
from flodl_wire.faults import Broken
from flodl_wire.records import Opener, Sealer

KEY = bytes(range(32))


def ends(cipher: str = noise.AES) -> tuple[Sealer, Opener]:
    return Sealer(noise.CipherState(cipher, KEY)), Opener(noise.CipherState(cipher, KEY))


@pytest.mark.parametrize("cipher", [noise.AES, noise.CHACHA])
@pytest.mark.parametrize("size", [1, 100, records.RECORD_PLAINTEXT])
def test_a_record_is_two_bytes_of_length_then_ciphertext_and_tag(cipher: str, size: int) -> None:
    sealer, opener = ends(cipher)
    plaintext = os.urandom(size)
    out = memoryview(bytearray(records.RECORD))
    length = sealer.seal_record(plaintext, out)
    assert length == size + 18
    assert int.from_bytes(out[:2], "big") == size + noise.TAG
    back = memoryview(bytearray(size + 5))
    assert opener.open_record(out[2:length], back) == size
    assert back[:size] == plaintext


def test_a_record_opens_once_and_in_its_turn_only() -> None:
    sealer, opener = ends()
    first, second = memoryview(bytearray(21)), memoryview(bytearray(21))
    sealer.seal_record(b"one", first)
    sealer.seal_record(b"two", second)
    back = memoryview(bytearray(3))
    with pytest.raises(Broken, match="record 0 has a wrong tag"):
        opener.open_record(second[2:], back)
    opener.open_record(first[2:], back)
    with pytest.raises(Broken, match="record 1 has a wrong tag"):
        opener.open_record(first[2:], back)


@given(st.lists(st.lists(st.sampled_from([0, 1, 21, 4095, 4096, 65_519, 65_520, 300_000]), max_size=6), max_size=3))
def test_buffers_become_one_stream_of_records_and_no_step_is_longer_than_a_batch(messages: list[list[int]]) -> None:
    sealer, opener = ends()
    buffers = [os.urandom(size) for sizes in messages for size in sizes]
    rest = iter(buffers)
    stream, back = b"", b""
    for sizes in messages:
        for step in sealer.records(*[next(rest) for _ in sizes]):
            assert 0 < len(step) <= records.BATCH
            stream += step
    while stream:
        length = int.from_bytes(stream[:2], "big")
        plaintext = memoryview(bytearray(length - noise.TAG))
        opener.open_record(stream[2 : 2 + length], plaintext)
        back, stream = back + plaintext, stream[2 + length :]
    assert back == b"".join(buffers)

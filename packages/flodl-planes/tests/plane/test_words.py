"""Words, waits and segments: what processes of one host tell each other through memory."""

from __future__ import annotations

import gc
import os
from itertools import product

import numpy as np
import pytest

from flodl_planes.plane import words
from flodl_planes.plane.segment import Segment
from flodl_planes.plane.words import Words, control_bytes, encode, wait_until
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import CHUNK_BYTES


def test_later_is_larger() -> None:
    steps = list(product((0, 1, 2**31 - 2), (0, 1, 255), (0, 1, 2**24 - 1)))
    encoded = [encode(*step) for step in steps]
    assert encoded == sorted(set(encoded))
    assert max(encoded) < 2**63


def test_every_rank_has_a_word_and_a_scratch_chunk_of_its_own() -> None:
    segment = Segment.create("control", control_bytes(70))
    control = Words(segment, 70)
    for index in range(70):
        control.write(index, index + 1)
        control.scratch[index][:] = index
    assert [control.read(index) for index in range(70)] == list(range(1, 71))
    assert all((control.scratch[i] == i).all() and control.scratch[i].nbytes == CHUNK_BYTES for i in range(70))


def test_the_fence_of_other_processors_is_one_too() -> None:
    words._lock_fence()


def test_a_wait_ends_when_it_came_true() -> None:
    turns = iter([False] * 5 + [True])
    assert wait_until(lambda: next(turns), lambda: False)


def test_a_wait_looks_whether_the_others_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "LOOK_S", 0.0)
    looks = iter([False, False, True])
    assert not wait_until(lambda: False, lambda: next(looks))


def test_memory_is_shared_by_its_descriptor_and_outlives_it() -> None:
    ours = Segment.create("x", 5 << 20)
    theirs = Segment.received(os.dup(ours.fd), 5 << 20)
    ours.array[:] = 7
    view = theirs.array[10:20]
    ours.close()
    theirs.close()
    del theirs
    gc.collect()
    assert (view == 7).all()
    ours.buffer[10:11] = b"\x09"
    assert view[0] == 9


def test_no_bytes_are_memory_too() -> None:
    nothing = Segment.create("nothing", 0)
    assert Segment.received(os.dup(nothing.fd), 0).array.nbytes == 0
    assert len(nothing.buffer) == 0


@pytest.mark.parametrize("kind", ["unsealed", "other size", "a file", "closed"])
def test_a_descriptor_that_could_shrink_under_our_feet_is_refused(kind: str) -> None:
    if kind == "a file":
        fd = os.open(os.devnull, os.O_RDONLY)
    else:
        fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 100)
    if kind == "other size":
        os.close(fd)
        segment = Segment.create("x", 200)
        fd = os.dup(segment.fd)
    if kind == "closed":
        os.close(fd)
        with pytest.raises(OSError, match="Bad file"):
            Segment.received(fd, 100)
        return
    with pytest.raises(Broken, match="sealed segment"):
        Segment.received(fd, 100)


def test_a_shared_segment_cannot_be_cut_short() -> None:
    segment = Segment.create("x", 4096)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(segment.fd, 0)


def test_more_memory_than_there_can_be_is_a_fault_in_words() -> None:
    with pytest.raises(Broken, match=r"shared memory .*MB"):
        Segment.create("huge", 1 << 62)
    assert np.dtype(np.int64).itemsize == 8

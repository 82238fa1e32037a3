"""The consensus between rounds: what a broken one leaves, what a lost host takes with it, what a host owes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flodl_planes.plane.consensus import Consensus, Feedback, Uplink
from flodl_planes.plane.encoding import BLOCK, encoded_bytes
from flodl_planes.plane.layout import lay_out
from flodl_wire.plane_messages import TensorSpec

LAYOUT = lay_out([TensorSpec("w", [700_000], "F32", "param")])  # three chunks
FIRST, SECOND = LAYOUT.chunks[:2]
SMALL = lay_out([TensorSpec("w", [BLOCK], "F32", "param")])
STEP = np.linspace(0.001, 1.0, BLOCK, dtype=np.float32)


def of(buffer: Any, chunk: Any) -> Any:
    return buffer[chunk.live_offset : chunk.live_offset + chunk.live_bytes]


def half_made(round: int = 3) -> tuple[Consensus, Any]:
    """Of ones, whose first chunk a round has made twos."""
    current = np.full(LAYOUT.total_bytes, 1, np.uint8)
    consensus = Consensus(LAYOUT, current)
    consensus.begin(round)
    consensus.before(0)
    of(current, FIRST)[:] = 2
    return consensus, current


def test_a_chunk_that_a_new_round_has_not_reached_is_what_the_one_before_left() -> None:
    consensus, current = half_made()
    consensus.commit()
    consensus.begin(4)
    assert (consensus.before(0) == 2).all() and (consensus.before(1) == 1).all()
    of(current, SECOND)[:] = 3
    consensus.begin(5)
    assert (current == 2).sum() == FIRST.live_bytes and (current == 3).sum() == 0
    assert (consensus.before(1) == 1).all()


def test_a_consensus_that_moves_takes_along_what_was_decided_and_nothing_else() -> None:
    consensus, _ = half_made()
    elsewhere = np.full(LAYOUT.total_bytes, 9, np.uint8)
    consensus.move_to(elsewhere)
    assert (elsewhere == 1).all() and consensus.current is elsewhere
    of(elsewhere, FIRST)[:] = 7
    consensus.begin(4)
    assert (elsewhere[: FIRST.live_bytes] == 7).all(), "of the round before the move nothing is left to put back"
    assert (consensus.before(0) == 7).all()


def test_without_keep_the_consensus_is_what_lies_there() -> None:
    consensus, _ = half_made()
    elsewhere = np.full(LAYOUT.total_bytes, 9, np.uint8)
    consensus.move_to(elsewhere, keep=False)
    consensus.begin(3)
    assert (elsewhere == 9).all() and (consensus.before(0) == 9).all()


def said(uplink: Uplink) -> Any:
    """What the host says of a move of STEP."""
    out = np.zeros(encoded_bytes("int8", BLOCK), np.uint8)
    uplink.encode("int8", SMALL.chunks[0], STEP.copy(), out)
    return out.tolist()


@pytest.mark.parametrize("counts", [True, False])
def test_a_host_owes_what_the_attempt_left_unsaid_that_was_decided(counts: bool) -> None:
    uplink = Uplink(SMALL, np.zeros(SMALL.total_bytes, np.uint8))
    uplink.begin(1, 0, sends=True)
    first = said(uplink)
    assert any(first)
    uplink.commit(1, 0 if counts else 1)
    uplink.begin(2, 0, sends=True)
    assert (said(uplink) != first) == counts


def test_a_host_that_only_listens_owes_what_it_did_before() -> None:
    uplink = Uplink(SMALL, np.zeros(SMALL.total_bytes, np.uint8))
    uplink.begin(1, 0, sends=True)
    first = said(uplink)
    uplink.begin(1, 1, sends=False)  # the attempt again, in which it has no weight
    uplink.commit(1, 1)
    uplink.commit(1, 0)
    uplink.begin(2, 0, sends=True)
    assert said(uplink) == first


def test_what_comes_down_is_laid_on_the_consensus_of_the_round_before() -> None:
    result = np.zeros(SMALL.total_bytes, np.uint8)
    uplink, feedback = Uplink(SMALL, result), Feedback(SMALL)
    out = np.zeros(encoded_bytes("int8", BLOCK), np.uint8)
    difference = feedback.encode("int8", SMALL.chunks[0], STEP.copy(), out).copy()
    live = of(result, SMALL.chunks[0]).view(np.float32)
    uplink.begin(1, 0, sends=False)
    uplink.land("int8", 0, SMALL.chunks[0], out)
    uplink.begin(1, 1, sends=False)
    uplink.land("int8", 0, SMALL.chunks[0], out)
    assert (live == difference).all(), "once, however many attempts it takes"
    uplink.commit(1, 1)
    uplink.begin(2, 0, sends=False)
    uplink.land("int8", 0, SMALL.chunks[0], out)
    assert (live == difference + difference).all()

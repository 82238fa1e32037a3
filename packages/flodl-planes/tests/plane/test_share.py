"""A round of one host alone, share by share, in one process: who does what, and who can take over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flodl_planes.plane.kernels import Adder
from flodl_planes.plane.layout import Layout, lay_out
from flodl_planes.plane.segment import Segment
from flodl_planes.plane.share import HostMemory, Share, crossed, finish_line, owned
from flodl_planes.plane.words import Words, control_bytes
from flodl_wire.plane_messages import CHUNK_BYTES, Round, TensorSpec

ELEMENTS = CHUNK_BYTES // 4 * 5 + 17  # six chunks, the last one short


def memory_of(ranks: list[int], layout: Layout, seed: int = 0) -> HostMemory:
    generator = np.random.default_rng(seed)
    lives = [np.empty(layout.total_bytes, np.uint8) for _ in ranks]
    for live in lives:
        live[: layout.total_bytes // 4 * 4].view(np.float32)[:] = generator.standard_normal(layout.total_bytes // 4)
    words = Words(Segment.create("control", control_bytes(len(ranks))), len(ranks))
    return HostMemory(ranks, layout, words, lives, np.zeros(layout.total_bytes, np.uint8))


def plain() -> Layout:
    return lay_out([TensorSpec("w", [ELEMENTS], "F32", "param")])


def round_of(ranks: list[int], **more: Any) -> Round:
    return Round(0, {str(rank): 1 / len(ranks) for rank in ranks}, ranks[0], True, **more)


def average(memory: HostMemory) -> Any:
    return np.mean([live.view(np.float32).astype(np.float64) for live in memory.lives], axis=0)


@pytest.mark.parametrize("ranks", [[0], [0, 1], [3, 4, 7], list(range(9))])
def test_all_shares_together_give_everybody_the_average(ranks: list[int]) -> None:
    memory = memory_of(ranks, plain())
    expected, round = average(memory), round_of(ranks)
    line = finish_line(memory, round)
    for index in range(len(ranks)):
        assert not crossed(memory, line) or index > 5  # nine ranks, six chunks: the last ones have nothing to do
        Share(memory, round, index, Adder()).run()
    assert crossed(memory, line)
    for live in memory.lives:
        np.testing.assert_allclose(live.view(np.float32), expected, atol=1e-6)
        np.testing.assert_array_equal(live, memory.lives[0])


def test_every_chunk_has_one_owner_among_the_hands() -> None:
    memory = memory_of([0, 1, 2], plain())
    round = round_of([0, 1, 2], hands=[0, 2])
    shares = [owned(memory, round, index) for index in range(3)]
    assert shares[1] == []
    assert sorted(shares[0] + shares[2]) == sorted(memory.layout.chunks)


@pytest.mark.parametrize("step", range(7))
def test_a_share_whose_owner_died_anywhere_is_finished_to_the_same_bits(step: int) -> None:
    """The owner dies after `step` publications of its word, and with the first rank's memory half written."""
    whole, broken = memory_of([0, 1], plain()), memory_of([0, 1], plain())
    round = round_of([0, 1])
    for index in range(2):
        Share(whole, round, index, Adder()).run()

    class Died(Exception):
        pass

    share = Share(broken, round, 1, Adder())
    write, spread, count = broken.words.write, share._spread, 0

    def counted(index: int, word: int) -> None:
        nonlocal count
        if count == step:
            raise Died
        count += 1
        write(index, word)

    def half(chunk: Any) -> None:
        if count >= step:
            hands, share._hands = share._hands, share._hands[:1]
            spread(chunk)
            share._hands = hands
            raise Died
        spread(chunk)

    broken.words.write = counted  # type: ignore[method-assign]
    share._spread = half  # type: ignore[method-assign]
    with pytest.raises(Died):
        share.run()
    broken.words.write = write  # type: ignore[method-assign]
    Share(broken, round, 1, Adder()).run()  # the relay
    Share(broken, round, 0, Adder()).run()
    assert crossed(broken, finish_line(broken, round))
    for ours, theirs in zip(broken.lives, whole.lives, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_finishing_a_finished_share_changes_nothing() -> None:
    memory = memory_of([0, 1], plain())
    round = round_of([0, 1])
    for index in (0, 1, 0, 1, 1):
        Share(memory, round, index, Adder()).run()
    np.testing.assert_array_equal(memory.lives[0], memory.lives[1])


def test_a_dead_rank_that_is_no_hand_is_read_and_not_written() -> None:
    memory = memory_of([0, 1], plain())
    expected, before = average(memory), memory.lives[1].copy()
    Share(memory, round_of([0, 1], hands=[0]), 0, Adder()).run()
    np.testing.assert_allclose(memory.lives[0].view(np.float32), expected, atol=1e-6)
    np.testing.assert_array_equal(memory.lives[1], before)


def test_a_later_round_starts_from_nothing() -> None:
    memory = memory_of([0, 1], plain())
    for number in range(3):
        round = Round(number, {"0": 0.5, "1": 0.5}, 0, True, hands=[0, 1])
        assert not crossed(memory, finish_line(memory, round))
        for index in (0, 1):
            Share(memory, round, index, Adder()).run()
        assert crossed(memory, finish_line(memory, round))


def test_keep_leaves_the_average_in_the_result_and_integers_come_from_the_leader() -> None:
    layout = lay_out([TensorSpec("w", [100], "F32", "param"), TensorSpec("n", [3], "I32", "buffer")])
    memory = memory_of([0, 1], layout)
    for rank, live in enumerate(memory.lives):
        live[:] = 0  # the gap between the sections is nobody's
        live[layout.offsets[1] :].view(np.int32)[:] = rank
    round = Round(0, {"0": 0.5, "1": 0.5}, 1, True, keep=True)
    for index in (0, 1):
        Share(memory, round, index, Adder()).run()
    for live in (*memory.lives, memory.result):
        np.testing.assert_array_equal(live, memory.lives[0])
        np.testing.assert_array_equal(live[layout.offsets[1] :].view(np.int32), 1)

"""Windows as they are really dealt: the probe, the body of an epoch, its tail."""

import pytest

from flodl_planes.coordinator.dealing import Free, Lockstep, Paced, _pieces
from flodl_planes.coordinator.pool import Pool, batches_in
from flodl_planes.elche.cadence import Cadence, Measured
from flodl_planes.elche.settings import Settings


def paced(ms: dict[int, float], progressive: bool = False, **settings: object) -> Paced:
    cadence = Cadence(ms, Settings(progressive=progressive, **settings))  # type: ignore[arg-type]
    if any(ms.values()):
        cadence.report({rank: Measured(10, 10 * speed, 10 * speed, speed) for rank, speed in ms.items()}, 0.0)
    return Paced(cadence)


def windows(
    dealer: Paced | Lockstep, ranks: list[int], batches: int, busy: dict[int, float] | None = None
) -> list[list[int]]:
    pool = Pool(batches * 10, 10)
    dealt = []
    while pool.batches:
        shares = dealer.deal(pool, ranks, batches, busy or {})
        dealt.append([batches_in(shares[rank], 10) for rank in ranks])
    return dealt


def test_the_first_window_of_a_run_is_a_short_probe() -> None:
    assert windows(paced({0: 0.0, 1: 0.0}), [0, 1], 20)[0] == [3, 3]
    assert windows(paced({0: 0.0, 1: 0.0}, anchor=2), [0, 1], 20)[0] == [2, 2]
    assert windows(paced({0: 0.0, 1: 0.0, 2: 0.0}), [0, 1, 2], 2)[0] == [1, 1, 0]


def test_shares_that_are_named_hold_from_the_first_window_on() -> None:
    assert windows(paced({0: 0.0, 1: 0.0}, partition_ratios=[2.5, 1.0]), [0, 1], 20)[0] == [8, 3]
    three = paced({0: 0.0, 1: 0.0, 2: 0.0}, partition_ratios=[0.2, 6.0, 0.6])
    assert windows(three, [1, 2], 99)[0] == [30, 3], "among those that are there"
    assert windows(paced({0: 0.0, 1: 0.0}, partition_ratios=[1.0, 1e6]), [0, 1], 999)[0] == [3, 192]


def test_the_body_of_an_epoch_follows_the_counts() -> None:
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 350)[:8] == [[25, 10]] * 8


def test_an_epochs_tail_is_one_window_or_two_equal_ones() -> None:
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 46) == [[33, 13]]
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 60) == [[22, 8], [22, 8]]


def test_the_evaluating_rank_gets_less_of_a_window() -> None:
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 350, {0: 40.0})[0] == [15, 10]
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 46, {0: 40.0}) == [[30, 16]]


def test_an_evaluation_longer_than_a_window_makes_the_window_longer() -> None:
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 350, {0: 300.0})[0] == [0, 30]
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 350, {0: 300.0, 1: 0.0})[0] == [0, 30]


def test_in_lockstep_the_last_ranks_go_without_at_an_epochs_end() -> None:
    assert windows(Lockstep(), [0, 1, 2], 7) == [[1, 1, 1], [1, 1, 1], [1, 0, 0]]


def test_where_several_batches_make_a_step_windows_hold_whole_ones_but_at_an_epochs_end() -> None:
    assert windows(Lockstep(4), [0, 1], 18) == [[4, 4], [4, 4], [2, 0]]
    assert windows(paced({0: 0.0, 1: 0.0}, accumulate=4), [0, 1], 20)[0] == [4, 4]
    assert windows(paced({0: 4.0, 1: 10.0}, accumulate=4), [0, 1], 350)[:7] == [[28, 12]] * 7
    assert windows(paced({0: 4.0, 1: 10.0}, accumulate=4), [0, 1], 46) == [[33, 13]]


def test_a_bound_on_the_spread_leaves_steps_whole() -> None:
    assert windows(paced({0: 4.0, 1: 10.0}, accumulate=4, max_batch_diff=6), [0, 1], 350)[0] == [16, 12]
    assert windows(paced({0: 4.0, 1: 10.0}, accumulate=4, max_batch_diff=2), [0, 1], 350)[0] == [12, 12]


def held(dealer: Paced, batches: int = 90) -> tuple[Pool, list[int]]:
    """A pool and what of it is dealt at once to ranks 0 and 1."""
    pool = Pool(batches * 10, 10)
    shares = dealer.deal(pool, [0, 1], batches, {})
    return pool, [batches_in(shares[rank], 10) for rank in (0, 1)]


def further(
    dealer: Paced, pool: Pool, done: dict[int, float], busy: dict[int, float | None], way: float = 0.0
) -> dict[int, int]:
    """`done`: rank → what its batches have taken."""
    spans = dealer.further(pool, dict.fromkeys(done, 3), done, busy, dict.fromkeys(done, way))
    return {rank: batches_in(pieces, 10) for rank, pieces in spans.items()}


def test_half_of_a_window_is_held_back_while_only_first_batches_are_known() -> None:
    pool, dealt = held(paced({0: 4.0, 1: 10.0}, progressive=True))
    assert (dealt, pool.batches) == ([13, 5], 72), "a full window of 35 batches, of which 17 are for later"


def test_who_is_done_first_gets_half_of_what_it_should_still_get_and_the_last_one_all() -> None:
    dealer = paced({0: 4.0, 1: 10.0}, progressive=True, anchor=90)
    pool, dealt = held(dealer)
    assert dealt == [32, 13] and dealer.holds_back
    assert further(dealer, pool, {0: 4.0}, {1: 50.0}) == {0: 18}
    assert further(dealer, pool, {1: 10.0}, {0: 40.0}) == {1: 5}
    while pool.batches:
        assert further(dealer, pool, {0: 4.0, 1: 10.0}, {})
    assert further(dealer, pool, {0: 4.0, 1: 10.0}, {}) == {}


def test_a_window_in_the_middle_of_an_epoch_stays_as_large_as_its_counts() -> None:
    dealer = paced({0: 4.0, 1: 10.0}, progressive=True)
    pool, dealt = held(dealer, 350)
    given = sum(dealt)
    while more := further(dealer, pool, {0: 4.0, 1: 10.0}, {}):
        given += sum(more.values())
    assert given == 35 and not dealer.holds_back


def test_a_rank_that_turns_out_slower_than_it_was_taken_for_gets_less() -> None:
    dealer = paced({0: 4.0, 1: 4.0}, progressive=True, anchor=90)
    pool, _ = held(dealer)
    shares = further(dealer, pool, {0: 4.0, 1: 12.0}, {})
    assert shares[0] > 2 * shares[1] > 0


def test_a_piece_that_is_not_worth_its_way_is_left_to_the_others() -> None:
    dealer = paced({0: 4.0, 1: 10.0}, progressive=True, anchor=90)
    pool, _ = held(dealer)
    assert further(dealer, pool, {0: 4.0}, {1: 30.0}, way=60.0) == {}
    assert further(dealer, pool, {0: 4.0}, {}, way=60.0) == {0: 23}, "there is nobody else"


def test_nothing_is_held_back_over_a_long_way() -> None:
    dealer = paced({0: 4.0, 1: 10.0}, progressive=True, anchor=90)
    further(dealer, Pool(10, 10), {0: 4.0}, {}, way=40.0)
    pool, dealt = held(dealer)
    assert (dealt, pool.batches) == ([65, 25], 0)
    further(dealer, Pool(10, 10), {0: 4.0}, {}, way=1.0)
    assert sum(held(dealer)[1]) == 45, "one hiccup is not for ever"


def test_the_way_of_a_dead_rank_holds_nobody_up() -> None:
    dealer = paced({0: 4.0, 1: 10.0, 2: 10.0}, progressive=True, anchor=90)
    further(dealer, Pool(10, 10), {2: 10.0}, {}, way=40.0)
    dealer.drop(2)
    assert sum(held(dealer)[1]) == 45


def test_nothing_is_held_back_where_speeds_are_what_they_were_taken_for() -> None:
    dealer = paced({0: 4.0, 1: 10.0}, progressive=True)
    for _ in range(3):
        dealer.report({rank: Measured(10, 10 * ms, 10 * ms, ms) for rank, ms in {0: 4.0, 1: 10.0}.items()}, 0.0, None)
    assert held(dealer)[1] == [25, 10]


def test_ranks_that_must_keep_in_step_get_no_further_pieces() -> None:
    for batches in (90, 30):  # in the middle of an epoch, and at its end
        dealer = paced({0: 4.0, 1: 10.0}, progressive=True, max_batch_diff=3)
        pool, _ = held(dealer, batches)
        assert pool.batches and not dealer.holds_back
        assert further(dealer, pool, {0: 4.0}, {1: 100.0}) == {}


def test_twice_the_error_is_held_back_and_half_of_the_window_at_most() -> None:
    for error, later in ((0.1, 7), (0.2, 14), (0.6, 17)):  # of 35
        dealer = paced({0: 4.0, 1: 10.0}, progressive=True)
        dealer._errors.append(error)
        assert sum(held(dealer, 350)[1]) == 35 - later


def test_nothing_is_held_back_of_a_window_that_is_short_beside_a_batch() -> None:
    dealer = paced({0: 4.0, 1: 10.0}, progressive=True, anchor=1)
    pool, dealt = held(dealer, 350)
    assert sum(dealt) == sum(dealer.cadence.counts.values()) == 4
    assert further(dealer, pool, {0: 4.0}, {1: 10.0}) == {}


def test_in_a_window_that_is_dealt_ahead_only_the_epochs_last_is_held_back() -> None:
    ahead = Free(paced({0: 4.0, 1: 10.0}, progressive=True).cadence)
    assert sum(held(ahead, 60)[1]) == 30 and not ahead.holds_back, "one of two, whole"
    assert sum(held(ahead, 30)[1]) == 15 and ahead.holds_back


@pytest.mark.parametrize(
    ("left", "way", "piece"), [(8, 20.0, 4), (8, 20.1, 0), (7, 20.0, 4), (3, 10.0, 2), (2, 10.0, 2)]
)
def test_a_piece_is_half_of_what_is_left_to_a_rank_and_worth_twice_its_way(left: int, way: float, piece: int) -> None:
    given = _pieces(left, {0: 10.0, 1: 10.0}, {1: 1000.0}, {0: way})
    assert given == ({0: piece} if piece else {})


def test_in_the_probe_a_rank_that_is_done_goes_on_until_the_last_has_begun_to_tell() -> None:
    dealer = paced({0: 0.0, 1: 0.0}, progressive=True)
    pool = Pool(900, 10)
    dealer.deal(pool, [0, 1], 90, {})
    assert further(dealer, pool, {0: 4.0}, {1: None}) == {0: 1}
    assert dealer.further(pool, {0: 10}, {0: 4.0}, {1: None}, {0: 0.0}) == {}, "nor further than the anchor's ten"
    assert len(dealer.further(pool, {0: 9}, {0: 4.0}, {1: None}, {0: 0.0})) == 1
    assert further(dealer, pool, {1: 10.0}, {0: 4.0}) == {}, "its first batches are known now"

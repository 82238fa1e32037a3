from hypothesis import given
from hypothesis import strategies as st

from flodl_planes.elche import counts


def test_halves_round_away_from_zero() -> None:
    assert [counts.half_away(value) for value in (22.5, 23.5, 0.5, 0.49)] == [23, 24, 1, 0]


def test_a_rank_gets_as_many_batches_as_fit_the_anchors_window() -> None:
    assert counts.target(10, 10.0, 4.35) == 23
    assert [counts.target(10, 10.0, ms) for ms in (4.0, 10.0, 9.2)] == [25, 10, 11]


def test_the_speed_ratio_is_capped_at_64() -> None:
    assert counts.target(10, 10.0, 0.0001) == 640


def test_a_rank_without_a_speed_does_what_the_anchor_does() -> None:
    assert counts.target(10, 10.0, 0.0) == 10


def test_slack_takes_whole_batches_off_but_never_the_last() -> None:
    assert counts.less_slack(10, 25.0, 10.0) == 7
    assert counts.less_slack(2, 900.0, 10.0) == 1


def test_counts_beyond_the_epoch_are_scaled_and_the_rest_goes_to_the_largest() -> None:
    assert counts.cap_to_epoch({0: 40, 1: 10}, 46) == ({0: 37, 1: 9}, True)
    assert counts.cap_to_epoch({0: 25, 1: 10}, 46) == ({0: 25, 1: 10}, False)
    assert counts.cap_to_epoch({0: 25, 1: 10}, 35) == ({0: 25, 1: 10}, False)
    assert counts.cap_to_epoch({0: 25, 1: 10, 2: 1}, 2) == ({0: 1, 1: 1, 2: 1}, True)


def test_no_rank_gets_more_than_the_slowest_and_the_spread() -> None:
    assert counts.within_spread({0: 25, 1: 10, 2: 11}, 5) == {0: 15, 1: 10, 2: 11}
    assert counts.within_spread({0: 25, 1: 10}, 0) == {0: 10, 1: 10}
    assert counts.within_spread({0: 4, 1: 0}, 0) == {0: 1, 1: 0}, "somebody must go on"
    assert counts.within_spread({0: 25, 1: 10}, 100) == {0: 25, 1: 10}


def test_a_clamped_total_hands_the_remainder_to_the_first_ranks() -> None:
    assert counts.clamp_total({0: 3, 1: 3, 2: 3}, 5) == {0: 2, 1: 2, 2: 1}
    assert counts.clamp_total({0: 3, 1: 3}, 9) == {0: 3, 1: 3}


def test_the_last_window_lets_all_finish_together() -> None:
    assert counts.finish_together(46, {0: 2.0, 1: 5.0}, {}) == {0: 33, 1: 13}


def test_a_rank_that_evaluates_first_gets_less_of_the_last_window() -> None:
    assert counts.finish_together(46, {0: 2.0, 1: 5.0}, {0: 20.0}) == {0: 30, 1: 16}


def test_a_lone_batch_goes_to_another_rank_when_that_costs_little() -> None:
    assert counts.finish_together(21, {0: 1.0, 1: 20.0}, {}) == {0: 21, 1: 0}
    assert counts.finish_together(11, {0: 1.0, 1: 10.0}, {}) == {0: 11, 1: 0}, "a tenth is little"
    assert counts.finish_together(3, {0: 1.0, 1: 2.0}, {}) == {0: 2, 1: 1}


@given(
    st.integers(0, 400),
    st.dictionaries(st.integers(0, 5), st.floats(0.01, 1e4), min_size=1),
    st.dictionaries(st.integers(0, 5), st.floats(0.0, 1e5)),
)
def test_the_last_window_deals_exactly_what_is_left(total: int, ms: dict[int, float], busy: dict[int, float]) -> None:
    dealt = counts.finish_together(total, ms, busy)
    assert sum(dealt.values()) == total
    assert min(dealt.values()) >= 0


@given(st.integers(1, 60), st.lists(st.sampled_from([1.0, 2.0, 2.5, 4.0, 10.0]), min_size=2, max_size=3))
def test_no_other_deal_ends_noticeably_sooner(total: int, speeds: list[float]) -> None:
    ms = dict(enumerate(speeds))

    def ends(deal: dict[int, int]) -> float:
        return max(count * ms[rank] for rank, count in deal.items())

    def deals(left: int, rank: int) -> list[dict[int, int]]:
        if rank == len(speeds) - 1:
            return [{rank: left}]
        return [{rank: n, **rest} for n in range(left + 1) for rest in deals(left - n, rank + 1)]

    best = min(ends(deal) for deal in deals(total, 0))
    assert ends(counts.finish_together(total, ms, {})) <= best * (1 + counts.LONE_COST) ** len(speeds) + 1e-6

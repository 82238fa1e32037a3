import math

import pytest

from flodl_planes.elche.cadence import Cadence, Measured
from flodl_planes.elche.guards import NudgeDown, Stable, SuppressGrowth
from flodl_planes.elche.settings import Settings, read_settings
from flodl_wire.faults import Refused


def window(cadence: Cadence, ms: dict[int, float]) -> dict[int, Measured]:
    """What ranks of these speeds measure when they do their counts."""
    return {rank: measured(cadence.counts[rank], speed) for rank, speed in ms.items()}


def measured(batches: int, ms: float, fill: float = 0.0) -> Measured:
    return Measured(batches, batches * ms, batches * ms + fill, ms + fill)


def settled(ms: dict[int, float], reports: int, sync_ms: float = 0.0, **settings: object) -> Cadence:
    cadence = Cadence(ms, Settings(**settings))  # type: ignore[arg-type]
    for _ in range(reports):
        cadence.report(window(cadence, ms), sync_ms)
    return cadence


def test_the_first_report_elects_the_slow_rank_and_sets_the_counts() -> None:
    cadence = settled({0: 4.35, 1: 10.0}, 1)
    assert (cadence.anchor_rank, cadence.counts) == (1, {0: 23, 1: 10})
    assert settled({0: 4.0, 1: 10.0, 2: 9.2}, 1).counts == {0: 25, 1: 10, 2: 11}


def test_phases_follow_the_number_of_reports() -> None:
    assert [settled({0: 1.0, 1: 2.0}, n).phase for n in (0, 1, 4, 5, 19, 20)] == [
        "probe",
        "warmup",
        "warmup",
        "stable",
        "stable",
        "mature",
    ]


def test_the_anchor_is_pinned_while_warming_up() -> None:
    cadence = settled({0: 4.0, 1: 10.0}, 1)
    for _ in range(3):
        cadence.report(window(cadence, {0: 30.0, 1: 10.0}), 0.0)
    assert (cadence.phase, cadence.anchor_rank) == ("warmup", 1)
    cadence.report(window(cadence, {0: 30.0, 1: 10.0}), 0.0)
    assert (cadence.phase, cadence.anchor_rank) == ("stable", 1)  # elected before this report counted
    cadence.report(window(cadence, {0: 30.0, 1: 10.0}), 0.0)
    assert cadence.anchor_rank == 0


def test_a_pinned_anchor_that_is_silent_for_five_reports_is_replaced() -> None:
    cadence = Cadence([0, 1], Settings(partition_ratios=[3.0, 1.0]))
    assert cadence.anchor_rank == 1
    for _ in range(4):
        cadence.report({0: measured(10, 4.0)}, 0.0)
    assert (cadence.anchor_rank, cadence.calibrations) == (1, 0)
    cadence.report({0: measured(10, 4.0)}, 0.0)
    assert (cadence.anchor_rank, cadence.calibrations) == (0, 1)


def test_small_changes_leave_the_counts_alone() -> None:
    cadence = settled({0: 4.0, 1: 10.0}, 6)
    assert cadence.counts == {0: 25, 1: 10}
    for _ in range(5):
        cadence.report(window(cadence, {0: 4.2, 1: 10.0}), 0.0)  # 24 batches would fit now
    assert cadence.counts == {0: 25, 1: 10}
    for _ in range(5):
        cadence.report(window(cadence, {0: 4.4, 1: 10.0}), 0.0)
    assert cadence.counts == {0: 23, 1: 10}


def test_max_batch_diff_bounds_each_step_once_calibrated() -> None:
    cadence = settled({0: 10.0, 1: 10.0}, 1, max_batch_diff=3)
    for expected in (10, 13, 16):
        assert cadence.counts[1] == expected
        cadence.report(window(cadence, {0: 10.0, 1: 2.0}), 0.0)


def test_one_rank_without_a_delivered_figure_puts_all_on_compute_time() -> None:
    slow_data = {0: Measured(10, 40.0, 140.0, 14.0), 1: Measured(1, 10.0, 11.0, 11.0)}
    cadence = Cadence([0, 1], Settings())
    cadence.report(slow_data, 0.0)
    assert (cadence.smoothed(0), cadence.smoothed(1)) == (4.0, 10.0)


def test_with_all_delivered_the_first_batch_is_left_out() -> None:
    cadence = Cadence([0, 1], Settings())
    cadence.report({0: Measured(10, 40.0, 150.0, 60.0), 1: Measured(10, 100.0, 120.0, 12.0)}, 0.0)
    assert (cadence.smoothed(0), cadence.smoothed(1)) == (10.0, 12.0)


def test_the_first_report_never_proposes_growth_and_the_second_does() -> None:
    assert settled({0: 10.0, 1: 10.0}, 1, sync_ms=400.0).anchor == 10
    assert settled({0: 10.0, 1: 10.0}, 2, sync_ms=400.0).anchor == 20


def test_one_hiccup_of_the_network_grows_nothing() -> None:
    cadence = settled({0: 10.0, 1: 10.0}, 8, sync_ms=1.0)
    cadence.report(window(cadence, {0: 10.0, 1: 10.0}), 900.0)
    assert cadence.anchor == 10


@pytest.mark.parametrize(
    ("ms", "sync_ms"), [(100.0, 40_000.0), (100.0, 16_000.0), (5.0, 40_000.0), (5.0, 1300.0), (0.5, 300.0)]
)
def test_any_link_is_within_its_target_after_ten_windows(ms: float, sync_ms: float) -> None:
    """25 million parameters over 20 Mbit/s take 40 s: sixteen times what a window of a hundred batches lasts."""
    cadence = settled({0: ms / 2.5, 1: ms}, 9, sync_ms=sync_ms)
    assert sync_ms / (cadence.anchor * ms + sync_ms) <= 0.052


def test_growth_waits_while_the_epoch_caps_the_window() -> None:
    cadence = settled({0: 10.0, 1: 10.0}, 1)
    assert cadence.window(15, {}) == {0: 8, 1: 7}
    cadence.report(window(cadence, {0: 10.0, 1: 10.0}), 400.0)
    assert cadence.anchor == 10


def test_a_callbacks_time_is_taken_off_one_window_only() -> None:
    cadence = settled({0: 4.0, 1: 10.0}, 1)
    assert cadence.window(1000, {0: 20.0}) == {0: 20, 1: 10}
    assert cadence.window(1000, {}) == {0: 25, 1: 10}


def test_suppressing_growth_drops_the_proposal_until_five_stable_verdicts() -> None:
    cadence = settled({0: 10.0, 1: 10.0}, 1)
    cadence.proposed = 20
    cadence.judge(SuppressGrowth())
    assert cadence.proposed is None
    for _ in range(4):
        cadence.report(window(cadence, {0: 10.0, 1: 10.0}), 400.0)
    assert cadence.anchor == 10
    cadence.report(window(cadence, {0: 10.0, 1: 10.0}), 400.0)
    assert cadence.anchor == 10, "the fifth verdict comes behind its window's proposal"
    cadence.report(window(cadence, {0: 10.0, 1: 10.0}), 400.0)
    assert cadence.anchor == 20


@pytest.mark.parametrize(("anchor", "factor", "expected"), [(10, 0.5, 5), (7, 0.5, 4), (1, 0.5, 1), (10, math.nan, 10)])
def test_a_nudge_shrinks_the_anchor_even_below_its_floor(anchor: int, factor: float, expected: int) -> None:
    cadence = settled({0: 10.0, 1: 10.0}, 1, anchor=anchor)
    cadence.judge(NudgeDown(factor))
    assert cadence.anchor == expected


def test_a_small_nudge_moves_the_counts_all_the_same() -> None:
    cadence = settled({0: 10.0, 1: 10.0}, 1, anchor=100)
    cadence.judge(NudgeDown(0.97))
    assert (cadence.anchor, cadence.counts) == (97, {0: 97, 1: 97})


@pytest.mark.parametrize(("on", "anchor"), [(True, 5), (False, 10)])
def test_a_learning_rate_that_drops_shrinks_the_anchor_unless_that_is_switched_off(on: bool, anchor: int) -> None:
    cadence = settled({0: 10.0, 1: 10.0}, 1, meta_controller=on)
    for rate in (0.1, 0.01):
        cadence.report(window(cadence, {0: 10.0, 1: 10.0}), 0.0, rate=rate)
    assert cadence.anchor == anchor


def test_first_batches_alone_tell_nothing_of_what_is_delivered() -> None:
    assert Measured(2, 20.0, 30.0, 22.0, pieces=2).delivered is None
    assert Measured(3, 30.0, 36.0, 24.0, pieces=2).delivered == 12.0
    assert Measured(3, 30.0, 36.0, 27.0, pieces=2).fill_ms == 9.0


def test_an_older_proposal_does_not_overwrite_a_nudge() -> None:
    cadence = settled({0: 10.0, 1: 10.0}, 1)
    cadence.proposed = 20
    cadence.judge(NudgeDown(0.5))
    cadence.judge(Stable())
    assert cadence.anchor == 5


def test_relaxing_up_stops_at_the_largest_allowed_spread() -> None:
    cadence = settled({0: 10.0, 1: 30.0}, 1, relax_up=True, max_batch_diff=100)
    for _ in range(100):
        cadence.judge(Stable())
    assert (cadence.anchor, cadence.counts) == (50, {0: 150, 1: 50})


def test_a_speed_hint_sets_the_first_counts() -> None:
    cadence = Cadence([0, 1, 2], Settings(speed_hint=(2, 2.25)))
    assert (cadence.anchor_rank, cadence.counts) == (2, {0: 23, 1: 23, 2: 10})


def test_when_the_anchor_dies_the_slowest_left_takes_over() -> None:
    cadence = settled({0: 2.0, 1: 4.0, 2: 10.0}, 3)
    cadence.drop(2)
    assert (cadence.anchor_rank, cadence.counts) == (1, {0: 20, 1: 10})


def test_a_wrong_setting_is_refused_by_name() -> None:
    for wrong in (
        {"ancor": 3},
        {"anchor": 0},
        {"max_anchor": 5},
        {"partition_ratios": [1.0]},
        {"speed_hint": [5, 2.0]},
    ):
        with pytest.raises(Refused) as caught:
            read_settings(wrong, 2)
        assert next(iter(wrong)) in str(caught.value) or "anchor" in str(caught.value)

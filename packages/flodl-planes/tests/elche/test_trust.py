import math

from flodl_planes.elche.trust import TrustWindow


def test_the_speed_is_the_mean_of_the_last_five_windows() -> None:
    trust = TrustWindow()
    for ms in (10.0, 10.0, 11.0, 9.0, 10.0, 11.0):
        trust.push(ms)
    assert trust.smoothed == (10 + 11 + 9 + 10 + 11) / 5


def test_nothing_known_is_zero() -> None:
    assert TrustWindow().smoothed == 0


def test_a_sample_that_is_no_time_counts_as_a_miss() -> None:
    trust = TrustWindow()
    trust.push(10.0)
    for bad in (0.0, -1.0, math.nan, math.inf):
        trust.push(bad)
    assert (trust.smoothed, trust.misses) == (10.0, 4)


def test_five_misses_in_a_row_clear_the_window() -> None:
    trust = TrustWindow()
    trust.push(10.0)
    for _ in range(5):
        trust.miss()
    assert trust.smoothed == 0


def test_one_outlier_is_noise() -> None:
    trust = TrustWindow()
    for ms in (10.0, 10.0, 10.0, 30.0, 10.0):
        trust.push(ms)
    assert trust.smoothed == 14.0


def test_two_outliers_on_the_same_side_are_a_change_of_speed() -> None:
    trust = TrustWindow()
    for ms in (10.0, 10.0, 10.0, 30.0, 30.0):
        trust.push(ms)
    assert trust.smoothed == 30.0
    for ms in (11.0, 10.0):
        trust.push(ms)
    assert trust.smoothed == 10.5

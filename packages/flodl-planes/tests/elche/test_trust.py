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


def test_a_miss_between_two_figures_does_not_add_up() -> None:
    trust = TrustWindow()
    trust.push(10.0)
    for _ in range(3):
        for _ in range(4):
            trust.miss()
        trust.push(10.0)
    assert (trust.misses, trust.smoothed) == (0, 10.0)


def test_two_in_a_row_beyond_three_tenths_are_a_change_and_one_of_them_is_none() -> None:
    for speeds, smoothed in (
        ((10.0, 10.0, 13.5, 13.5), 13.5),
        ((10.0, 10.0, 7.5, 7.5), 7.5),
        ((10.0, 10.0, 13.5, 12.5), 11.5),
        ((10.0, 10.0, 7.5, 8.5), 9.0),
        ((10.0, 14.0), 12.0),
        ((10.0, 14.0, 14.0), 14.0),
    ):
        trust = TrustWindow()
        for speed in speeds:
            trust.push(speed)
        assert trust.smoothed == smoothed

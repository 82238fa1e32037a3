import math

from flodl_planes.elche.guards import MsfGuard, NoGuard, NudgeDown, Stable, SuppressGrowth, TrendGuard, Verdict, guard


def test_three_rises_that_end_above_the_threshold_suppress_growth() -> None:
    trend = TrendGuard(0.05)
    assert [trend.read(value, 10) for value in (0.01, 0.02, 0.04)] == [Stable()] * 3
    assert trend.read(0.06, 10) == SuppressGrowth()


def test_three_rises_below_the_threshold_do_not() -> None:
    trend = TrendGuard(0.05)
    assert [trend.read(value, 10) for value in (0.01, 0.02, 0.03, 0.04)] == [Stable()] * 4


def test_a_fall_in_between_starts_the_count_again() -> None:
    trend = TrendGuard(0.05)
    assert [trend.read(value, 10) for value in (0.06, 0.07, 0.05, 0.08, 0.09)] == [Stable()] * 5


def test_windows_that_grow_are_no_objection_to_themselves() -> None:
    """Ranks part at the same pace; they drift further because they are left alone for longer."""
    trend = TrendGuard(0.05)
    assert [trend.read(0.01 * n, 10 * n) for n in (1, 2, 4, 8, 16, 32)] == [Stable()] * 6
    assert [trend.read(0.4 * n, 320) for n in (1, 2, 3)][-1] == SuppressGrowth()


def test_fast_exponential_growth_nudges_down_and_slow_growth_suppresses() -> None:
    fast, slow = MsfGuard(), MsfGuard()
    assert [fast.read(1e-3 * math.exp(0.02 * 10 * t), 10) for t in range(4)][-1] == NudgeDown(0.5)
    assert [slow.read(1e-3 * math.exp(0.005 * 10 * t), 10) for t in range(4)][-1] == SuppressGrowth()


def test_readings_below_the_noise_floor_are_skipped() -> None:
    msf = MsfGuard()
    assert [msf.read(value, 10) for value in (1e-9, 1e-3, 1e-9, 1e-3)] == [Stable()] * 4


def test_guards_have_names() -> None:
    assert isinstance(guard("msf", 0.05), MsfGuard)
    assert isinstance(guard("trend", 0.05), TrendGuard)
    assert guard("none", 0.05).read(9.0, 1) == Stable()
    assert isinstance(guard("none", 0.05), NoGuard)


def test_a_longer_window_is_no_rise() -> None:
    trend = TrendGuard(0.05)
    readings = [(0.10, 1), (0.11, 1), (0.12, 1), (0.23, 2)]
    assert [trend.read(*reading) for reading in readings] == [Stable()] * 4
    assert [TrendGuard(0.05).read(0.1, 0)] == [Stable()]


def test_growth_is_a_mean_that_keeps_nine_tenths_of_what_it_was_and_all_of_three_must_be_above() -> None:
    msf, divergence, verdicts = MsfGuard(), 0.1, list[Verdict]()
    msf.read(divergence, 1)
    for rate in (0.0, 0.0, 0.04, 0.04, 0.04):
        divergence *= math.exp(rate)
        verdicts.append(msf.read(divergence, 1))
    assert verdicts == [Stable()] * 4 + [NudgeDown(0.5)]

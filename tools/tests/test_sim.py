"""What the scheduler reaches on paper; real runs are in the benchmarks."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from tools import sim


@pytest.mark.parametrize("case", [case for case in sim.CASES if case.mode == "cpu_cadence"], ids=lambda case: case.name)
def test_uneven_ranks_are_kept_busy(case: sim.Case) -> None:
    outcome = sim.World(case).run()
    assert outcome.result.balance is not None
    assert outcome.result.balance >= 0.80
    assert outcome.result.samples == case.samples * case.epochs


@pytest.mark.parametrize("case", [case for case in sim.CASES if case.link], ids=lambda case: case.name)
def test_averages_over_a_slow_link_take_the_promised_share_after_ten_windows(case: sim.Case) -> None:
    settled = sim.World(case).run().settled_sync
    assert settled is not None and settled <= 0.08


@pytest.mark.parametrize("ms", [(2.0, 5.0), (2.0, 8.0), (60.0, 150.0), (60.0, 240.0)])
def test_together_they_reach_nine_tenths_of_what_they_do_alone(ms: tuple[float, ...]) -> None:
    samples = 1437 if ms[0] < 10 else 8000
    case = sim.Case("efficiency", ms, samples=samples, epochs=200 if ms[0] < 10 else 3, sync_ms=2.0)
    assert sim.World(case).run().efficiency >= 0.90


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async"])
@pytest.mark.parametrize("ms", [(14.0, 35.0), (14.0, 56.0), (14.0, 28.0, 56.0)])
def test_where_speeds_wander_and_epochs_are_short_pieces_bring_them_to_nineteen_twentieths(
    mode: str, ms: tuple[float, ...]
) -> None:
    case = sim.Case("moods", ms, batch=16, epochs=24, sync_ms=3.0, evaluate_ms=3.0, jitter=0.08, mood=0.08, mode=mode)

    def reached(**elche: bool) -> float:
        return statistics.fmean(sim.World(replace(case, elche=elche), seed).run().efficiency for seed in range(5))

    assert reached() >= max(0.95, reached(progressive=False))


def test_a_rank_of_cpu_async_goes_no_further_than_its_overshoot_without_the_average() -> None:
    case = sim.Case("late", (10.0, 10.0), samples=32_000, epochs=1, sync_ms=60.0, jitter=0.0, mode="cpu_async")

    def reached(**elche: int) -> sim.Outcome:
        return sim.World(replace(case, elche=elche | {"max_anchor": 10})).run()

    one, ten, followed = reached(max_overshoot=1), reached(max_overshoot=10), reached()
    assert one.result.sync_share == pytest.approx(50 / 150, rel=0.1), "of 60 ms it works on for 10"
    assert ten.result.sync_share is not None and ten.result.sync_share < 0.02
    assert followed.efficiency == pytest.approx(ten.efficiency, rel=0.05), "allowances follow how late averages are"
    assert one.efficiency < 0.75 * ten.efficiency


def test_a_change_of_speed_is_followed_within_two_windows() -> None:
    swapped = (10.0, (30.0, 10.0))
    case = sim.Case("swap", (10.0, 30.0), samples=64_000, epochs=1, jitter=0.0, change=swapped)
    windows = sim.World(case).run().windows
    ratios = [shares[0] / shares[1] for shares in windows if len(shares) == 2 and shares[1]]
    before = next(at for at, ratio in enumerate(ratios) if at > 3 and ratio < 2.5)
    assert ratios[before - 1] == pytest.approx(3.0, rel=0.2)
    assert ratios[before + 2] == pytest.approx(1 / 3, rel=0.2)
    assert all(ratio == pytest.approx(1 / 3, rel=0.2) for ratio in ratios[before + 2 : -2])


def test_the_table_prints_a_line_per_case() -> None:
    assert len(sim.table(sim.CASES[:2])) == 3

import pytest

from flodl_planes.coordinator.accounting import Accounts
from flodl_wire.plane_messages import Deposit
from flodl_wire.specs import RankPlace

PLACES = [RankPlace(0, "here", 0, "cpu"), RankPlace(1, "here", 1, "cpu")]


def deposit(window: int, samples: int, busy: float, wait: float = 0.0, sync: float = 0.0) -> Deposit:
    return Deposit(window, 1, samples, busy, 0.0, busy, wait, sync, 2.0 * samples, samples)


def test_balance_is_what_was_reached_over_what_the_ranks_could_do() -> None:
    accounts = Accounts(PLACES)
    accounts.begin(10.0)
    accounts.merged(11.0, {0: (5, deposit(0, 300, 1000.0)), 1: (2, deposit(0, 100, 500.0))})
    result = accounts.result("r", "cpu_cadence")
    assert (result.wall_s, result.samples, result.samples_per_s) == (1.0, 400, 400.0)
    assert result.balance == pytest.approx(400 / (300 + 200))
    assert [(rank.batches, rank.samples, rank.busy_s) for rank in result.ranks] == [(5, 300, 1.0), (2, 100, 0.5)]


def test_the_first_windows_wait_is_loading_and_does_not_count() -> None:
    accounts = Accounts(PLACES)
    accounts.begin(0.0)
    accounts.merged(1.0, {0: (1, deposit(0, 10, 900.0, wait=60_000.0, sync=50.0))})
    accounts.merged(2.0, {0: (1, deposit(1, 10, 900.0, wait=100.0, sync=40.0))})
    result = accounts.result("r", "cpu_cadence")
    assert result.ranks[0].wait_s == 0.1
    assert result.sync_share == pytest.approx(40 / 1900, abs=1e-4)


def test_an_epoch_begins_where_the_last_one_ended() -> None:
    accounts = Accounts(PLACES)
    accounts.begin(0.0)
    accounts.merged(2.0, {0: (1, deposit(0, 10, 900.0))})
    accounts.end_epoch(0)
    accounts.merged(5.0, {0: (1, deposit(1, 10, 900.0))})
    accounts.end_epoch(1)
    assert [(epoch.epoch, epoch.wall_s, epoch.samples, epoch.loss) for epoch in accounts.epochs] == [
        (0, 2.0, 10, 2.0),
        (1, 3.0, 10, 2.0),
    ]


def test_live_rates_look_at_the_last_seconds_only() -> None:
    accounts = Accounts(PLACES)
    accounts.begin(0.0)
    for second in range(1, 21):
        accounts.merged(float(second), {0: (1, deposit(second, 10 if second < 12 else 40, 500.0))})
    assert accounts.recent_rate == 40.0
    assert accounts.rank_rate(0) == 80.0
    assert accounts.rank_rate(1) == 0.0


def test_a_run_without_rounds_has_rows_without_figures() -> None:
    result = Accounts(PLACES).result("r", "torch")
    assert (result.balance, result.sync_share, result.round_ms_median, result.rounds) == (None, None, None, 0)
    assert [(rank.rank, rank.samples) for rank in result.ranks] == [(0, 0), (1, 0)]

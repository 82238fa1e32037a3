"""What the hub tells of how the ranks spend their time."""

from typing import Any

from flodl_planes.coordinator.accounting import Accounts
from flodl_planes.coordinator.timeline import Clockwork
from flodl_wire.hub_messages import EpochDone, Spent, Timeline
from flodl_wire.plane_messages import Deposit


def deposit(window: int) -> Deposit:
    return Deposit(window, 5, 50, compute_ms=40.0, data_ms=10.0, wait_ms=30.0, sync_ms=4.0)


def test_busy_waiting_and_averaging_are_told_apart_and_add_up() -> None:
    accounts = Accounts([])
    clock = Clockwork(accounts, 100.0)
    accounts.begin(100.0)
    accounts.merged(101.0, {0: (5, deposit(1)), 1: (2, deposit(1))})
    first = clock.row(101.0)
    assert first == Timeline(1.0, [Spent(0, 0.05, 0.026, 0.004, 5, 50), Spent(1, 0.05, 0.026, 0.004, 2, 50)])
    accounts.merged(101.1, {0: (5, deposit(2))})
    assert clock.row(101.1) is None, "too early: it waits for the next row"
    accounts.merged(101.2, {0: (5, deposit(3))})
    assert clock.row(101.3) == Timeline(1.3, [Spent(0, 0.1, 0.052, 0.008, 10, 100)])


def test_nothing_new_is_no_row_and_the_last_one_is_never_too_early() -> None:
    accounts = Accounts([])
    clock = Clockwork(accounts, 0.0)
    assert clock.row(1.0) is None
    accounts.merged(1.0, {0: (5, deposit(1))})
    assert clock.row(1.0) is not None
    assert clock.row(2.0, last=True) is None
    accounts.merged(2.0, {0: (1, deposit(2))})
    assert clock.row(1.01, last=True) is not None


def test_the_rows_of_a_run_hold_all_its_work(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=4000, epochs=2, evaluates=True).load().finish()
    rows = [spent for message in world.told(Timeline) for spent in message.spent]
    assert sum(row.samples for row in rows) == 2 * 4000
    assert len(world.told(Timeline)) < len(world.rounds), "a few a second, not one a round"


def test_an_epoch_is_told_in_figures_too(paper: Any) -> None:
    world = paper({"here": [0, 1]}, epochs=2, evaluates=True).load().finish()
    epochs = world.told(EpochDone)
    assert [(each.epoch, each.loss, each.samples, each.eval) for each in epochs] == [
        (0, 2.0, 100, {"accuracy": 0.5}),
        (1, 2.0, 100, {"accuracy": 0.5}),
    ]
    assert all(each.samples_per_s > 0 and each.wall_s > 0 for each in epochs)

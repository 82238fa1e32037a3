"""A rank of cpu_async against a relay that answers at moments of the test's choosing."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
from torch import nn

from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.segment import Segment
from flodl_planes.rank.async_member import AsyncWindows
from flodl_planes.rank.finite import Finite
from flodl_planes.rank.schema import slots_of
from flodl_planes.role.place import LocalCluster
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import Deposit, Dismiss, Finish, Leaving, Plan, Round, Terms
from flodl_wire.result import RunResult


class Plane:
    """`coming`: messages that lie in the socket; one that is waited for and not there fails the test."""

    def __init__(self, live: Any) -> None:
        self.coming: deque[Any] = deque()
        self.sent: list[Any] = []
        self.stand = False
        self._live = live

    def look(self) -> Any:
        return self.coming.popleft() if self.coming else None

    def wait(self, round: Round | None) -> None:
        assert round is not None, "it waits for a message that nobody sends"
        self.stand = True

    def stands(self, round: Round) -> bool:
        return self.stand

    def average(self, round: Round) -> Any:
        return self._live.array

    def send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.fixture
def windows() -> AsyncWindows:
    terms = Terms("cpu_async", 100, 10, 1, 0, True)
    place = LocalCluster("here", 0, 0, 2, "cpu", None, "/tmp", None, "cpu_async", "r")
    made = AsyncWindows(terms, place, "", torch.device("cpu"))
    slots = slots_of(nn.Linear(2, 1))
    layout = lay_out([slot.spec for slot in slots])
    live = Segment.create("live", layout.total_bytes)
    made._adopt(slots, layout, live)
    made._plane = Plane(live)  # type: ignore[assignment]
    made._on_plan = lambda plan: None
    made._finite = Finite(layout, [slot.spec for slot in slots], live.buffer)
    made._keeper = Keeper()  # type: ignore[assignment]
    return made


class Keeper:
    forgot = 0

    def forget(self) -> None:
        self.forgot += 1


def plane_of(windows: AsyncWindows) -> Plane:
    return windows._plane  # type: ignore[return-value]


def free(number: int) -> Round:
    return Round(number, {"0": 0.5, "1": 0.5}, 0, True, apart=True)


def test_the_end_may_come_before_the_last_evaluations_plan_is_reported(windows: AsyncWindows) -> None:
    """The hub needs the figures alone; its last word can be here before the empty plan around them is done."""
    plane = plane_of(windows)
    plane.coming.append(Finish(RunResult("r", "cpu_async", 2)))
    assert windows.report(Deposit(7, 0, 0)) is None
    assert windows.result is not None and plane.sent == [Leaving()]


def test_a_rank_goes_on_with_the_plan_it_holds_and_stops_at_its_allowance(windows: AsyncWindows) -> None:
    plane = plane_of(windows)
    plane.coming += [Plan(2, 0, [[0, 50]], overshoot=2)]
    plan = windows.report(Deposit(1, 3, 30))
    assert plan is not None and plan.window == 2
    plane.coming.append(free(1))
    windows.tick(10)
    assert not plane.stand  # the average is not there, and one batch is allowed
    windows.tick(10)
    assert plane.stand and windows._deposited is None  # the second one waited for it


def test_a_plan_is_told_of_when_it_comes_so_that_it_is_loaded_before_its_window(windows: AsyncWindows) -> None:
    plane, seen = plane_of(windows), []
    windows._on_plan = lambda plan: seen.append(plan.window)
    plane.coming += [Plan(2, 0, [[0, 50]])]
    windows.report(Deposit(1, 3, 30))
    plane.coming += [free(1), Plan(3, 0, [[50, 50]])]
    windows.tick(10)
    assert seen == [2, 2, 3], "and again as it begins"
    plan = windows.report(Deposit(2, 5, 50))
    assert plan is not None and plan.window == 3 and seen[2:] == [3, 3]


def test_an_allowance_of_nothing_waits_before_the_first_batch(windows: AsyncWindows) -> None:
    plane = plane_of(windows)
    plane.coming += [Plan(2, 0, [[0, 50]], overshoot=0), free(1)]
    windows.report(Deposit(1, 3, 30))
    assert plane.stand


def test_the_next_deposit_tells_how_late_the_average_was(windows: AsyncWindows) -> None:
    plane = plane_of(windows)
    plane.coming += [Plan(2, 0, [[0, 50]]), free(1), Plan(3, 0, [[50, 50]])]
    windows.report(Deposit(1, 3, 30))
    deposit = Deposit(2, 5, 50)
    windows.report(deposit)
    assert deposit.late_ms > 0 and [message.window for message in plane.sent] == [1, 2]


def test_a_rank_whose_snapshot_was_not_finite_becomes_the_average_and_forgets(windows: AsyncWindows) -> None:
    plane = plane_of(windows)
    own = windows._adopted._own.view("float32")
    own[0] = float("nan")
    plane.coming += [Plan(2, 0, [[0, 50]])]
    deposit = Deposit(1, 3, 30)
    windows.report(deposit)
    assert deposit.poisoned == "weight"
    plane._live.array.view("float32")[:] = 2.0  # what the others' average is
    own[1] = 7.0
    plane.coming.append(free(1))
    plane.stand = True
    windows.tick(10)
    assert (own == 2.0).all() and windows._keeper.forgot == 1  # type: ignore[attr-defined]


def test_a_failed_run_is_heard_of_between_two_batches(windows: AsyncWindows) -> None:
    plane = plane_of(windows)
    plane.coming += [Plan(2, 0, [[0, 50]])]
    windows.report(Deposit(1, 3, 30))
    plane.coming.append(Dismiss("rank 1 failed"))
    with pytest.raises(Broken, match="rank 1 failed"):
        windows.tick(10)

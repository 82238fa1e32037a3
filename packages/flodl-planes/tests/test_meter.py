"""What a window's report says, from the moments at which things happened."""

from __future__ import annotations

import math

import msgspec

from flodl_planes.rank.meter import Meter
from flodl_planes.rank.windows import cut
from flodl_wire.plane_messages import Deposit


def test_a_window_is_counted_in_batches_samples_and_milliseconds() -> None:
    meter = Meter()
    meter.got(asked=10.0, now=10.5)
    meter.done(got=10.5, now=11.0, samples=4, worked=True)
    meter.got(asked=11.0, now=11.1)
    meter.done(got=11.1, now=11.5, samples=3, worked=True)
    meter.lost(2.0, 4)
    meter.lost(1.0, 3)
    found = meter.deposit(window=6)
    assert (found.window, found.steps, found.samples, found.loss_sum, found.loss_samples) == (6, 2, 7, 11.0, 7)
    assert [round(ms) for ms in (found.data_ms, found.compute_ms, found.first_ms)] == [600, 900, 1000]


def test_a_batch_that_was_not_worked_on_is_no_step() -> None:
    meter = Meter()
    for worked in (True, False):
        meter.got(0.0, 0.0)
        meter.done(0.0, 1.0, 4, worked)
    assert (meter.steps, meter.samples) == (1, 8)


def test_a_loss_that_is_not_finite_is_flagged_and_travels_as_json() -> None:
    meter = Meter()
    meter.lost(math.nan, 4)
    found = msgspec.json.decode(msgspec.json.encode(meter.deposit(0)), type=Deposit)
    assert found.not_finite and found.loss_samples == 0


def test_an_empty_window_is_all_zero() -> None:
    assert Meter().deposit(3) == Deposit(window=3, steps=0, samples=0)


def test_each_span_is_cut_by_itself_and_only_its_end_may_be_short() -> None:
    assert cut([[0, 8], [20, 5]], 4) == [(0, 4), (4, 4), (20, 4), (24, 1)]
    assert cut([], 4) == []

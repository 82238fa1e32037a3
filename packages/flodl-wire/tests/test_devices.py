"""Device specs: all, 0,1, cpu:2."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import devices
from flodl_wire.devices import CpuDevices, Devices, GpuDevices
from flodl_wire.faults import Refused


@pytest.mark.parametrize(
    ("spec", "meant", "ranks"),
    [
        ("all", GpuDevices(None), None),
        (" ALL ", GpuDevices(None), None),
        ("cpu:2", CpuDevices(2), 2),
        ("CPU:256", CpuDevices(256), 256),
        ("0,1", GpuDevices([0, 1]), 2),
        ("2, 3", GpuDevices([2, 3]), 2),
        (0, GpuDevices([0]), 1),
        ([3, 1], GpuDevices([3, 1]), 2),
    ],
)
def test_each_spelling_is_understood(spec: Any, meant: Devices, ranks: int | None) -> None:
    assert devices.parse(spec, "--devices") == meant
    assert devices.count(meant) == ranks


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (True, "it is neither a list nor a word"),
        ("cpu", "cpu:N takes a number of ranks from 1 to 256"),
        ("cpu:0", "cpu:N takes a number of ranks from 1 to 256"),
        ("cpu:257", "cpu:N takes a number of ranks from 1 to 256"),
        ("cpu:x", "cpu:N takes a number of ranks from 1 to 256"),
        ("cpu2", "cpu:N takes a number of ranks from 1 to 256"),
        ("cpu:" + "9" * 5000, "cpu:N takes a number of ranks from 1 to 256"),
        ("", "an index must be a whole number, 0 or more"),
        ("0,,1", "an index must be a whole number, 0 or more"),
        ("gpu", "an index must be a whole number, 0 or more"),
        ("-1", "an index must be a whole number, 0 or more"),
        ("9" * 5000, "an index must be a whole number, 0 or more"),
        ([-1], "an index must be 0 or more"),
        ([], "the list is empty"),
        ([10**30], "an index above 9999 cannot be meant"),
        (list(range(257)), "one host may offer 256 devices at most"),
        ([1, 0, 1], "device 1 stands there twice"),
        ("0,0", "device 0 stands there twice"),
    ],
)
def test_the_rest_is_refused_with_its_reason_and_the_ways_to_write_it(spec: Any, why: str) -> None:
    with pytest.raises(Refused) as caught:
        devices.parse(spec, "--devices")
    assert str(caught.value) == f"cannot read --devices: {spec!r}: {why}"
    assert caught.value.fix == "write all, a list such as 0,1, or cpu:2 for two CPU ranks"


@given(st.integers(1, 256).map(CpuDevices) | st.lists(st.integers(0, 999), min_size=1, unique=True).map(GpuDevices))
def test_devices_read_back_as_they_are_shown(meant: CpuDevices | GpuDevices) -> None:
    assert devices.parse(devices.render(meant), "x") == meant


@given(st.text() | st.integers() | st.lists(st.integers()))
def test_whatever_is_written_is_devices_or_a_refusal(spec: Any) -> None:
    try:
        meant = devices.parse(spec, "x")
    except Refused:
        return
    assert devices.parse(devices.render(meant), "x") == meant


def test_devices_travel_with_a_tag() -> None:
    assert msgspec.json.encode(CpuDevices(2)) == b'{"type":"cpu","count":2}'
    assert msgspec.json.decode(b'{"type":"gpu","indices":null}', type=Devices) == GpuDevices(None)

"""Which devices a host offers, and what it says when it has none."""

from __future__ import annotations

import json

import pytest
from agent_fakes import Box, FakeWindow

from flodl_agent.offer import ProbedDevice, ProbedDevices, choose, find_offers
from flodl_wire.devices import CpuDevices, GpuDevices
from flodl_wire.faults import Refused
from flodl_wire.join_messages import Hello

FOUND = ProbedDevices(
    [
        ProbedDevice(0, "GPU-a", "0000:01", "NVIDIA H200", "sm90", 139 << 30),
        ProbedDevice(2, name="GeForce"),
        ProbedDevice(5, vendor="amd"),
    ]
)


def test_cpu_ranks_need_no_look_at_the_box() -> None:
    assert [(offer.kind, offer.index, offer.label) for offer in find_offers(CpuDevices(2), "h")] == [
        ("cpu", 0, "cpu"),
        ("cpu", 1, "cpu"),
    ]


def test_gpus_are_offered_in_the_order_of_the_spec_or_all_by_index() -> None:
    assert [offer.index for offer in choose(GpuDevices([2, 0]), FOUND, "h")] == [2, 0]
    offers = choose(GpuDevices(None), FOUND, "h")
    assert [(offer.kind, offer.index, offer.label) for offer in offers] == [
        ("cuda", 0, "NVIDIA H200 (139GB, sm90)"),
        ("cuda", 2, "GeForce"),
        ("rocm", 5, "rocm:5"),
    ]


def test_an_index_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(Refused, match=r"it has no device 1, 7; it has 0 \(NVIDIA H200\), 2 \(GeForce\), 5 \(GPU\)"):
        choose(GpuDevices([0, 1, 7]), FOUND, "h")


def test_a_box_without_a_gpu_shows_the_flag_for_cpu_ranks(window: FakeWindow, box: Box) -> None:
    box.script("flodl-probe", 'print(\'{"devices": [], "notes": ["no driver"]}\')\n')
    spec = window.spec(path=str(box.project))
    spec.local_devices = None
    agent = box.agent(spec)
    assert agent.wait() == 1
    assert "cannot use node-a: no usable device: it has no GPU that flodl-probe can see; no driver" in agent.said()
    assert "`local_devices: cpu:2` in fdl.yml, or `--gpus cpu:2`" in agent.said()


def test_gpus_are_asked_of_flodl_probe(window: FakeWindow, box: Box) -> None:
    answer = {"devices": [{"index": 1, "name": "T4", "vendor": "nvidia", "arch": None, "memory_bytes": 16 << 30}]}
    box.script(
        "flodl-probe", f"import sys\nassert sys.argv[1:] == ['devices', '--json']\nprint({json.dumps(answer)!r})\n"
    )
    spec = window.spec(path=str(box.project))
    spec.local_devices = None
    box.agent(spec)
    link = window.link()
    assert [(offer.kind, offer.index, offer.label) for offer in link.wait_for(Hello).devices] == [
        ("cuda", 1, "T4 (16GB)")
    ]
    link.close()


def test_a_probe_that_fails_is_quoted(window: FakeWindow, box: Box) -> None:
    box.script("flodl-probe", "import sys\nsys.exit('flodl-probe: the driver is on fire')\n")
    spec = window.spec()
    spec.local_devices = None
    agent = box.agent(spec)
    assert agent.wait() == 1
    assert "cannot ask flodl-probe for the GPUs of this host: flodl-probe: the driver is on fire" in agent.said()

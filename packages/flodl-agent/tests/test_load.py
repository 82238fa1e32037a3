"""What the host says of its load: cards by their PCI address, rates since the last reading, silence on a full link."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psutil
import pytest
from agent_fakes import Box, FakeWindow

from flodl_agent import gpu_load, load
from flodl_wire.join_messages import Abort, DeviceOffer, GpuLoad, Hello, HostLoad

SMI = """\
00000000:65:00.0, 97, 1024, 81920
00000000:17:00.0, [N/A], 12, 81920
nonsense
0000BEEF:01:00.0, 3, [N/A], [N/A]
"""


def offer(index: int, pci: str) -> DeviceOffer:
    return DeviceOffer("cuda", index, pci=pci)


def test_a_card_is_found_by_its_address_and_not_by_its_place_in_a_list() -> None:
    reading = gpu_load.read_smi(SMI)
    loads = gpu_load.match([offer(0, "0000:17:00.0"), offer(1, "00000000:65:00.0"), offer(2, "0000:99:00.0")], reading)
    assert loads == [GpuLoad(0, None, 12 << 20, 81920 << 20), GpuLoad(1, 0.97, 1024 << 20, 81920 << 20)]
    assert gpu_load.match([offer(5, "beef:01:00.0")], reading) == [GpuLoad(5, 0.03, None, None)]
    assert gpu_load.match([offer(0, "")], reading) == []


def test_one_card_under_all_its_spellings() -> None:
    spellings = ["00000000:65:00.0", "0000:65:00.0", "65:00.0", " 0000:65:00.0 ", "00000000:65:00.0".upper()]
    assert {gpu_load.address(each) for each in spellings} == {"0000:65:00.0"}


def test_a_driver_that_makes_no_sense_is_left_alone_and_asked_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_load, "EVERY_S", 0.0)
    asked: list[int] = []

    def broken() -> gpu_load.Reading:
        asked.append(1)
        raise OSError("no driver")

    watch = gpu_load.GpuWatch([offer(0, "0000:65:00.0")], broken)
    watch.start()
    watch.join(5)
    assert not watch.is_alive() and watch.newest == [] and len(asked) == gpu_load.GIVE_UP_AFTER


def test_the_newest_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_load, "EVERY_S", 0.001)
    answers: Iterator[gpu_load.Reading] = iter([{"0000:65:00.0": (0.5, 1, 2)}, {"0000:65:00.0": (0.75, 1, 2)}])
    told, go_on = threading.Event(), threading.Event()

    def read() -> gpu_load.Reading:
        answer = next(answers, None)
        if answer is None:
            told.set()
            go_on.wait(5)
            raise OSError
        return answer

    watch = gpu_load.GpuWatch([offer(3, "0000:65:00.0")], read)
    watch.start()
    assert told.wait(5)
    assert watch.newest == [GpuLoad(3, 0.75, 1, 2)]
    watch.end()
    go_on.set()
    watch.join(5)


def test_rates_are_of_the_time_since_the_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    now, moved = [10.0], [(1000, 500)]
    monkeypatch.setattr(load, "_bytes_moved", lambda: moved[0])
    meter = load.LoadMeter([], lambda: now[0])
    now[0], moved[0] = 12.0, (3000, 400)
    reading = meter.read()
    assert reading is not None
    assert (reading.rx_per_s, reading.tx_per_s) == (1000.0, 0.0), "a count that went back is no traffic"
    assert 0 <= reading.cpu <= 1 and 0 < reading.memory_used <= reading.memory_total and reading.gpus == []


def test_a_box_that_does_not_say_is_no_reason_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise psutil.AccessDenied(1)

    monkeypatch.setattr(load.psutil, "virtual_memory", refuse)
    assert load.LoadMeter([]).read() is None


def test_a_host_that_is_in_tells_its_load_and_keeps_quiet_about_it_before(window: FakeWindow, box: Box) -> None:
    agent = box.agent(window.spec(path=str(box.project)))
    link = window.link()
    link.wait_for(Hello)
    assert not link.all(HostLoad)
    link.accept([0])
    reading = link.wait_for(HostLoad)
    assert 0 <= reading.cpu <= 1 and 0 < reading.memory_used <= reading.memory_total and not reading.gpus
    link.send(Abort("enough"))
    link.answer_bye()
    assert agent.wait() == 1

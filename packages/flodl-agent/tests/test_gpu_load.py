"""How busy the cards are by NVML: a stand-in of nvidia-ml-py answers, refuses, and is not there."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flodl_agent import gpu_load
from flodl_wire.join_messages import DeviceOffer, GpuLoad

OFFERS = [DeviceOffer("cuda", 0, pci="0000:17:00.0"), DeviceOffer("cuda", 1, pci="0000:65:00.0")]


class NVMLError(Exception):
    """As pynvml raises it."""


class NvidiaMl(ModuleType):
    """pynvml for cards in NVML's own order: [(bus id, busy percent, bytes used, bytes there)]; None for a figure
    is a card that does not answer that. `lost`: places of cards that have fallen off the bus.
    """

    def __init__(self, cards: list[tuple[Any, int | None, int | None, int]], lost: tuple[int, ...] = ()) -> None:
        super().__init__("pynvml")
        self.cards, self.lost, self.begun = cards, set(lost), 0

    def nvmlInit(self) -> None:
        self.begun += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, at: int) -> int:
        if at in self.lost:
            raise NVMLError("GPU is lost")
        return at

    def nvmlDeviceGetPciInfo(self, card: int) -> Any:
        return SimpleNamespace(busId=self.cards[card][0])

    def nvmlDeviceGetUtilizationRates(self, card: int) -> Any:
        if (busy := self.cards[card][1]) is None:
            raise NVMLError("Not Supported")
        return SimpleNamespace(gpu=busy, memory=0)

    def nvmlDeviceGetMemoryInfo(self, card: int) -> Any:
        _, _, used, total = self.cards[card]
        if used is None:
            raise NVMLError("Not Supported")
        return SimpleNamespace(used=used, total=total, free=total - used)


def reader(monkeypatch: pytest.MonkeyPatch, library: ModuleType | None) -> Any:
    """What the watch would ask; `library` None: nvidia-ml-py is not installed."""
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return gpu_load.reader()


def test_cards_in_another_order_than_ours_are_matched_by_their_pci_address(monkeypatch: pytest.MonkeyPatch) -> None:
    # bytes, as older nvidia-ml-py has them; the long domain; a card that is not ours in between
    library = NvidiaMl([("00000000:65:00.0", 97, 3, 8), ("00000000:03:00.0", 1, 1, 8), (b"00000000:17:00.0", 5, 2, 8)])
    read = reader(monkeypatch, library)
    assert gpu_load.match(OFFERS, read()) == [GpuLoad(0, 0.05, 2, 8), GpuLoad(1, 0.97, 3, 8)]
    read()
    assert library.begun == 1, "the driver is opened once"


def test_what_a_card_does_not_answer_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader(monkeypatch, NvidiaMl([("00000000:17:00.0", None, 2, 8), ("00000000:65:00.0", 50, None, 8)]))
    assert gpu_load.match(OFFERS, read()) == [GpuLoad(0, None, 2, 8), GpuLoad(1, 0.5, None, None)]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_card_that_fell_off_the_bus_takes_no_other_along(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    library = NvidiaMl([("00000000:17:00.0", 5, 2, 8), ("00000000:65:00.0", 50, 3, 8)])
    read = reader(monkeypatch, library)
    assert len(gpu_load.match(OFFERS, read())) == 2
    library.lost.add(lost)
    assert [load.index for load in gpu_load.match(OFFERS, read())] == [1 - lost]
    library.lost.clear()
    assert len(gpu_load.match(OFFERS, read())) == 2, "and it is shown again when it is back"


@pytest.mark.parametrize("library", ["missing", "no driver"])
def test_without_the_library_or_its_driver_nvidia_smi_is_asked(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    class Driverless(NvidiaMl):
        def nvmlInit(self) -> None:
            raise NVMLError("NVML Shared Library Not Found")

    asked: list[list[str]] = []

    def run(words: list[str], **how: Any) -> Any:
        asked.append(words)
        return SimpleNamespace(stdout="00000000:65:00.0, 97, 1024, 81920\n")

    monkeypatch.setattr(gpu_load.subprocess, "run", run)
    read = reader(monkeypatch, Driverless([]) if library == "no driver" else None)
    assert gpu_load.match(OFFERS, read()) == [GpuLoad(1, 0.97, 1024 << 20, 81920 << 20)]
    assert asked[0][0] == "nvidia-smi"

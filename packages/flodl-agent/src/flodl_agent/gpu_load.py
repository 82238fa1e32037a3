"""How busy the offered GPUs are: NVML where nvidia-ml-py is installed, else nvidia-smi.

A card is found by its PCI address. Its index is not enough: NVML counts in an order of its own, and masks renumber.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from typing import Any

from flodl_wire.join_messages import DeviceOffer, GpuLoad

EVERY_S = 2.0
ANSWER_S = 10.0  # what nvidia-smi may take; a cold driver takes several seconds
GIVE_UP_AFTER = 5  # answers in a row that made no sense
QUERY = ("--query-gpu=pci.bus_id,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")

Reading = dict[str, tuple[float | None, int | None, int | None]]  # PCI address → busy share, bytes used, bytes there


class GpuWatch(threading.Thread):
    """`newest` holds the last answer, one entry per offer whose card was found. Ends with the process."""

    def __init__(self, offers: list[DeviceOffer], read: Callable[[], Reading] | None = None) -> None:
        super().__init__(daemon=True, name="gpu-load")
        self.newest: list[GpuLoad] = []
        self._offers = offers
        self._read = read
        self._ended = threading.Event()

    def run(self) -> None:
        failures = 0
        read = self._read or reader()
        while failures < GIVE_UP_AFTER and not self._ended.wait(EVERY_S if failures or self.newest else 0.0):
            try:
                self.newest = match(self._offers, read())
            except Exception:  # whatever a driver comes up with: a run does not end for a figure
                self.newest = []
            failures = 0 if self.newest else failures + 1

    def end(self) -> None:
        self._ended.set()


def match(offers: list[DeviceOffer], reading: Reading) -> list[GpuLoad]:
    """The offers' cards in their order; one that the driver does not know is left out."""
    loads = []
    for offer in offers:
        found = reading.get(address(offer.pci))
        if found is not None:
            loads.append(GpuLoad(offer.index, *found))
    return loads


def address(pci: str) -> str:
    """ "00000000:65:00.0" (NVML) and "0000:65:00.0" (the kernel) are the same card."""
    domain, _, rest = pci.strip().lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}" if rest.count(":") == 1 else f"0000:{pci.strip().lower()}"


def reader() -> Callable[[], Reading]:
    """NVML's own library where it is there and finds a driver, else nvidia-smi."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return _ask_smi
    return lambda: _ask_nvml(pynvml)


def _ask_nvml(nvml: Any) -> Reading:
    found: Reading = {}
    for at in range(nvml.nvmlDeviceGetCount()):
        card = _or_none(nvml.nvmlDeviceGetHandleByIndex, at)  # a card that fell off the bus takes no other along
        place = _or_none(nvml.nvmlDeviceGetPciInfo, card) if card is not None else None
        if place is None:
            continue
        name = place.busId
        rates = _or_none(nvml.nvmlDeviceGetUtilizationRates, card)
        memory = _or_none(nvml.nvmlDeviceGetMemoryInfo, card)
        busy = rates.gpu / 100 if rates is not None else None
        used, total = (int(memory.used), int(memory.total)) if memory is not None else (None, None)
        found[address(name.decode() if isinstance(name, bytes) else name)] = (busy, used, total)
    return found


def _or_none(ask: Callable[[Any], Any], card: Any) -> Any:
    """MIG slices and old cards do not answer everything."""
    try:
        return ask(card)
    except Exception:
        return None


def _ask_smi() -> Reading:
    answer = subprocess.run(
        ["nvidia-smi", *QUERY], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S, check=True
    )
    return read_smi(answer.stdout)


def read_smi(text: str) -> Reading:
    """Lines of "00000000:65:00.0, 97, 1234, 81920": percent and MiB, or "[N/A]"."""
    found: Reading = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4:
            busy, used, total = (float(cell) if _is_number(cell) else None for cell in cells[1:])
            found[address(cells[0])] = (
                None if busy is None else busy / 100,
                None if used is None else int(used * 2**20),
                None if total is None else int(total * 2**20),
            )
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()

"""What the box does: processor, memory, network, and the GPUs that it offers.

Reading /proc takes microseconds and is done where it is asked for. A GPU's driver may take seconds or never answer, so
a thread of its own asks it, and the newest answer is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from flodl_agent.gpu_load import GpuWatch
from flodl_wire.join_messages import DeviceOffer, HostLoad

EVERY_S = 2.0


class LoadMeter:
    """Call `read` now and then: shares and rates are since the call before. `watch_gpus` once it may start a thread."""

    def __init__(self, offers: list[DeviceOffer], clock: Callable[[], float] = time.monotonic) -> None:
        self._offers = [offer for offer in offers if offer.kind != "cpu"]
        self._clock = clock
        self._gpus: GpuWatch | None = None
        self._at, self._bytes = clock(), (0, 0)
        self.read()  # the first answer is none

    def watch_gpus(self) -> None:
        """Begin to ask the driver; not before the host's processes are started: that must not happen beside threads."""
        if self._offers and self._gpus is None:
            self._gpus = GpuWatch(self._offers)
            self._gpus.start()

    def read(self) -> HostLoad | None:
        """None where the box does not say: no run ends for a figure."""
        try:
            return self._read()
        except (OSError, RuntimeError, ValueError, psutil.Error):
            return None

    def _read(self) -> HostLoad:
        now, moved = self._clock(), _bytes_moved()
        seconds = max(now - self._at, 1e-3)
        received, sent = ((new - old) / seconds for new, old in zip(moved, self._bytes, strict=True))
        self._at, self._bytes = now, moved
        memory = psutil.virtual_memory()
        return HostLoad(
            clock=round(time.time(), 3),
            cpu=round(min(1.0, psutil.cpu_percent(None) / 100), 4),
            memory_used=int(memory.total - memory.available),
            memory_total=int(memory.total),
            rx_per_s=round(max(0.0, received), 1),  # an interface that went away takes its count along
            tx_per_s=round(max(0.0, sent), 1),
            gpus=self._gpus.newest if self._gpus else [],
        )


def _bytes_moved() -> tuple[int, int]:
    """Received and sent since boot over every interface but loopback."""
    counters = psutil.net_io_counters(pernic=True)
    moved = [each for name, each in counters.items() if name != "lo"]
    return sum(each.bytes_recv for each in moved), sum(each.bytes_sent for each in moved)

"""Graphics and compute cards on the PCI bus, as the kernel lists them: they are there whatever the drivers say."""

from __future__ import annotations

from pathlib import Path

from flodl_probe.device import AMD, NVIDIA
from flodl_probe.facts import BusCard

DEVICES = Path("/sys/bus/pci/devices")
_VENDORS = {"0x10de": NVIDIA, "0x1002": AMD}
_CLASSES = ("0x03", "0x12")  # display controllers (an H100 is a "3D controller") and processing accelerators (MI300)


def read(devices: Path = DEVICES) -> list[BusCard]:
    found = []
    try:
        folders = sorted(devices.iterdir())
    except OSError:
        return []
    for folder in folders:
        vendor = _VENDORS.get(_word(folder / "vendor"))
        if vendor and _word(folder / "class").startswith(_CLASSES):
            link = folder / "driver"
            try:
                driver = link.resolve().name if link.exists() else None
            except OSError:
                driver = None
            found.append(BusCard(folder.name, vendor, driver))
    return found


def _word(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip().lower()
    except OSError:
        return ""

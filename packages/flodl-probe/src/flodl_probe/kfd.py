"""AMD GPUs by the kernel driver's topology in sysfs (KFD): it is there without any ROCm tool installed.

Nodes are numbered as the ROCm runtime numbers its agents, so the n-th GPU here is device n there.
"""

from __future__ import annotations

import os
from pathlib import Path

from flodl_probe.device import AMD, Device

ROOT = Path("/sys/class/kfd/kfd/topology/nodes")
KFD = Path("/dev/kfd")
_FRAME_BUFFER = ("1", "2")  # heap_type of a memory bank: visible and invisible part of the card's own memory


def query(root: Path = ROOT, door: Path = KFD) -> tuple[list[Device], list[str]]:
    """The GPUs below `root` and what is to be said about them. Empty and silent where there is no KFD. Never raises."""
    devices: list[Device] = []
    notes: list[str] = []
    try:
        nodes = sorted((path for path in root.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    except OSError:
        return [], []
    for node in nodes:
        try:
            facts = _properties(node / "properties")
        except PermissionError:  # a container without this card: the node is there and may not be read
            continue
        except OSError as err:
            notes.append(f"KFD node {node.name} cannot be read: {err.strerror or err}")
            continue
        if facts.get("simd_count", 0) > 0:
            devices.append(_device(len(devices), node, facts))
    if devices and not os.access(door, os.R_OK | os.W_OK):
        notes.append(
            f"{door} cannot be opened, so no program can use them: add this user to the groups render and video"
        )
    return devices, notes


def _device(index: int, node: Path, facts: dict[str, int]) -> Device:
    unique = facts.get("unique_id", 0)
    return Device(
        index,
        AMD,
        uuid=f"GPU-{unique:016x}" if unique else None,
        pci=_pci(facts),
        name=_first_line(node / "name"),
        arch=_arch(facts.get("gfx_target_version", 0)),
        memory_bytes=_memory(node / "mem_banks"),
    )


def _pci(facts: dict[str, int]) -> str | None:
    place = facts.get("location_id")
    if place is None:
        return None
    return f"{facts.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7:x}"


def _arch(version: int) -> str | None:
    """gfx_target_version 90402 is gfx942, 90010 is gfx90a: major * 10000 + minor * 100 + step, the last two in hex."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version > 0 else None


def _memory(banks: Path) -> int | None:
    """Bytes of the card's own memory; None for one that shares the processor's."""
    total = 0
    try:
        for bank in banks.iterdir():
            facts = _properties(bank / "properties")
            if str(facts.get("heap_type")) in _FRAME_BUFFER:
                total += facts.get("size_in_bytes", 0)
    except OSError:
        return None
    return total or None


def _properties(path: Path) -> dict[str, int]:
    """`name value` lines; what is no number is left out."""
    facts = {}
    for line in path.read_text("utf-8", "replace").splitlines():
        name, _, value = line.strip().partition(" ")
        try:
            facts[name] = int(value)
        except ValueError:
            continue
    return facts


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip().partition("\n")[0] or None
    except OSError:
        return None

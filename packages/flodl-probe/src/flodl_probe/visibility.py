"""Visibility masks: which of the box's GPUs the environment lets a program see, and in which order.

The vendors' rules: a comma list of indices or of UUIDs (any unique beginning will do); the first entry that names no
device hides itself and all behind it; an empty mask hides all.
"""

from __future__ import annotations

from collections.abc import Mapping

from flodl_probe.device import NVIDIA, Device

CUDA = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
HIP = "HIP_VISIBLE_DEVICES"
ROCR = "ROCR_VISIBLE_DEVICES"
ORDINAL = "GPU_DEVICE_ORDINAL"


def apply(devices: list[Device], env: Mapping[str, str]) -> tuple[list[Device], list[str]]:
    """The devices of one vendor that `env` leaves visible, in the order of the mask, and notes on what it hides."""
    if not devices:
        return [], []
    if devices[0].vendor == NVIDIA:
        seen, notes = _masked(devices, env, CUDA)
        names = {device.name for device in devices}
        if CUDA in env and len(names) > 1 and env.get(ORDER) != "PCI_BUS_ID" and not _by_uuid(env[CUDA]):
            notes.append(
                f"{CUDA} is read in PCI order; set {ORDER}=PCI_BUS_ID so that CUDA counts these unequal cards so too"
            )
        return seen, notes
    seen, notes = _masked(devices, env, ROCR)
    for name in (HIP, CUDA, ORDINAL):  # HIP takes the first that is set; its indices count what ROCR has left
        if name in env:
            seen, more = _masked(seen, env, name)
            return seen, notes + more
    return seen, notes


def _masked(devices: list[Device], env: Mapping[str, str], name: str) -> tuple[list[Device], list[str]]:
    mask = env.get(name)
    if mask is None:
        return devices, []
    seen: list[Device] = []
    notes: list[str] = []
    entries = [entry.strip() for entry in mask.split(",")] if mask.strip() else []
    for entry in entries:
        device = _named(devices, entry)
        if device is None or device in seen:
            if entry != "-1":  # the usual way to say "none from here on"
                why = "and names no GPU of this box" if device is None else "twice"
                if entry.upper().startswith("MIG-"):
                    why = "and is a slice of a GPU, which flodl does not offer yet"
                notes.append(f"{name}={mask}: {entry!r} stands there {why}; what follows it is hidden")
            break
        seen.append(device)
    if len(seen) < len(devices):
        notes.append(f"{name}={mask} leaves {len(seen)} of {len(devices)} GPUs visible")
    return seen, notes


def _named(devices: list[Device], entry: str) -> Device | None:
    if entry.isascii() and entry.isdigit():
        index = int(entry) if len(entry) < 6 else -1
        return devices[index] if 0 <= index < len(devices) else None
    if len(entry) <= len("GPU-"):
        return None
    found = [device for device in devices if (device.uuid or "").lower().startswith(entry.lower())]
    return found[0] if len(found) == 1 else None


def _by_uuid(mask: str) -> bool:
    return not any(entry.strip().isdigit() for entry in mask.split(","))

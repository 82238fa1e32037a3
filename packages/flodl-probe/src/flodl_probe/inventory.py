"""The GPUs of this box that a program started from here could use, and everything worth saying about them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from flodl_probe import kfd, nvidia_smi, nvml, visibility
from flodl_probe.device import Device


class Inventory:
    """`devices` in the order of the visibility masks; `notes` for people, each one sentence."""

    __slots__ = ("devices", "notes")

    def __init__(self, devices: list[Device], notes: list[str]) -> None:
        self.devices = devices
        self.notes = notes

    def as_dict(self) -> dict[str, object]:
        return {"devices": [device.as_dict() for device in self.devices], "notes": self.notes}


def take(env: Mapping[str, str] | None = None, kfd_root: Path = kfd.ROOT, kfd_door: Path = kfd.KFD) -> Inventory:
    """Ask the drivers. Creates no GPU context, writes nothing, never raises for anything a box can do."""
    env = os.environ if env is None else env
    nvidia, notes = _nvidia()
    seen, more = visibility.apply(nvidia, env)
    notes += more
    amd, more = kfd.query(kfd_root, kfd_door)
    if nvidia and amd:
        # A Ryzen's graphics unit beside an NVIDIA card is the usual case. Two vendors count from 0 each, so one list of
        # indices can only mean one of them.
        listed = ", ".join(device.label() for device in amd)
        notes.append(f"beside the NVIDIA GPUs this box has {listed}: left out, one run uses one vendor")
        return Inventory(seen, notes)
    notes += more
    if nvidia:
        return Inventory(seen, notes)
    seen, more = visibility.apply(amd, env)
    return Inventory(seen, notes + more)


def _nvidia() -> tuple[list[Device], list[str]]:
    """NVML where it answers, else nvidia-smi. A finding of the one that the other contradicts stays in the notes."""
    asked = nvml.query()
    if asked is not None and asked[0]:
        return asked
    devices, notes = nvidia_smi.query()
    return devices, (asked[1] if asked is not None else []) + notes

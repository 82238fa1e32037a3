"""Device specs, the same wherever devices are named: ``all``, ``0,1`` or ``cpu:2``."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from flodl_wire.faults import Refused

MAX_INDEX = 9999  # no box has so many; keeps the digits of an index in bounds
MAX_DEVICES = 256  # ranks one host may offer (the reference's bound)

DeviceSpec: TypeAlias = str | int | list[int]  # as it stands in a config: all | cpu:N | 0,1 | 0 | [0, 1]


class CpuDevices(msgspec.Struct, frozen=True, tag="cpu"):
    """`count` ranks on the processor."""

    count: int


class GpuDevices(msgspec.Struct, frozen=True, tag="gpu"):
    """GPUs by physical index (PCI order); None means every GPU of the host, to be asked there."""

    indices: list[int] | None


Devices: TypeAlias = CpuDevices | GpuDevices


def parse(spec: DeviceSpec, where: str) -> Devices:
    """The devices named by `spec`; `where` is the key or flag it came from. Raises Refused."""

    def refuse(why: str) -> Refused:
        return Refused(
            "bad-devices",
            f"cannot read {where}: {spec!r}",
            why,
            "write all, a list such as 0,1, or cpu:2 for two CPU ranks",
        )

    if isinstance(spec, bool):
        raise refuse("it is neither a list nor a word")
    if isinstance(spec, int):
        indices = [spec]
    elif isinstance(spec, str):
        word = spec.strip()
        if word.lower() == "all":
            return GpuDevices(None)
        if word.lower().startswith("cpu"):
            head, _, count = word.partition(":")
            if head.lower() != "cpu" or not _is_number(count) or not 1 <= int(count) <= MAX_DEVICES:
                raise refuse(f"cpu:N takes a number of ranks from 1 to {MAX_DEVICES}")
            return CpuDevices(int(count))
        parts = [part.strip() for part in word.split(",")]
        if not all(map(_is_number, parts)):
            raise refuse("an index must be a whole number, 0 or more")
        indices = [int(part) for part in parts]
    else:
        indices = list(spec)
    if not indices:
        raise refuse("the list is empty")
    if len(indices) > MAX_DEVICES:
        raise refuse(f"one host may offer {MAX_DEVICES} devices at most")
    if any(index < 0 for index in indices):
        raise refuse("an index must be 0 or more")
    if max(indices) > MAX_INDEX:
        raise refuse(f"an index above {MAX_INDEX} cannot be meant")
    twice = sorted({index for index in indices if indices.count(index) > 1})
    if twice:
        raise refuse(f"device {twice[0]} stands there twice")
    return GpuDevices(indices)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INDEX))


def count(devices: Devices) -> int | None:
    """How many ranks that is; None when the host must be asked."""
    if isinstance(devices, CpuDevices):
        return devices.count
    return None if devices.indices is None else len(devices.indices)


def render(devices: Devices) -> str:
    """The spec as a user would write it."""
    if isinstance(devices, CpuDevices):
        return f"cpu:{devices.count}"
    return "all" if devices.indices is None else ",".join(map(str, devices.indices))

"""Which devices this host offers: its spec, held against what the box has.

``cpu:N`` is known without looking. GPUs are asked of ``flodl-probe devices --json``, which numbers them in PCI order
whatever masks the shell had set. A box without a GPU never offers its processor by itself.
"""

from __future__ import annotations

import subprocess

import msgspec

from flodl_wire import sibling
from flodl_wire.deadlines import deadline
from flodl_wire.devices import CpuDevices, Devices, GpuDevices, render
from flodl_wire.faults import Broken, Refused
from flodl_wire.join_messages import DeviceOffer

_PROBE_SECONDS = 60.0  # a cold driver takes several seconds for each card


class ProbedDevice(msgspec.Struct):
    """One device of ``flodl-probe devices --json``."""

    index: int
    uuid: str | None = None
    pci: str | None = None
    name: str | None = None
    arch: str | None = None
    memory_bytes: int | None = None
    vendor: str = "nvidia"  # nvidia | amd


class ProbedDevices(msgspec.Struct):
    devices: list[ProbedDevice]
    notes: list[str] = []


def find_offers(devices: Devices | None, host: str) -> list[DeviceOffer]:
    """The devices that `devices` names on this box (None: every GPU). Raises Refused or Broken."""
    wanted = devices or GpuDevices(None)
    if isinstance(wanted, CpuDevices):
        return [DeviceOffer("cpu", index, "cpu") for index in range(wanted.count)]
    return choose(wanted, probe(), host)


def probe() -> ProbedDevices:
    """What flodl-probe says of this box. Raises Broken when it does not answer in its own words."""
    command = [sibling.require("flodl-probe"), "devices", "--json"]
    try:
        limit = deadline(_PROBE_SECONDS)
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False)
        return msgspec.json.decode(answer.stdout, type=ProbedDevices)
    except subprocess.TimeoutExpired:
        why = "it did not answer; a GPU driver may hang (try nvidia-smi)"
    except msgspec.MsgspecError:
        said = answer.stderr.decode(errors="replace").strip().splitlines()
        why = said[-1] if said else f"it answered nothing (exit {answer.returncode})"
    raise Broken("probe-failed", "cannot ask flodl-probe for the GPUs of this host", why, "run `flodl-probe devices`")


def choose(wanted: GpuDevices, found: ProbedDevices, host: str) -> list[DeviceOffer]:
    """The GPUs among `found` that `wanted` names, in its order. Raises Refused: none there, or an index that is not."""
    if not found.devices:
        raise Refused(
            "no-device",
            f"cannot use {host}: no usable device",
            "; ".join(["it has no GPU that flodl-probe can see", *found.notes]),
            "to train on its processor say so: `local_devices: cpu:2` in fdl.yml, or `--gpus cpu:2` "
            "(`fdl join`: `--devices cpu:2`)",
        )
    there = {device.index: device for device in found.devices}
    indices = sorted(there) if wanted.indices is None else wanted.indices
    missing = [index for index in indices if index not in there]
    if missing:
        raise Refused(
            "unknown-device",
            f"cannot use devices {render(wanted)} of {host}",
            f"it has no device {', '.join(map(str, missing))}; it has "
            + ", ".join(f"{index} ({device.name or 'GPU'})" for index, device in sorted(there.items())),
            "mend local_devices in fdl.yml, or --gpus",
        )
    return [_offer(there[index]) for index in indices]


def offers_of(found: ProbedDevices) -> list[DeviceOffer]:
    """Every GPU that is visible; empty without one."""
    return [_offer(device) for device in found.devices]


def _offer(device: ProbedDevice) -> DeviceOffer:
    kind = "rocm" if device.vendor == "amd" else "cuda"
    size = f"{round(device.memory_bytes / 2**30)}GB" if device.memory_bytes else ""
    extra = ", ".join(part for part in (size, device.arch) if part)
    label = f"{device.name} ({extra})" if device.name and extra else device.name or f"{kind}:{device.index}"
    return DeviceOffer(
        kind, device.index, label, device.uuid or "", device.arch or "", device.memory_bytes or 0, device.pci or ""
    )

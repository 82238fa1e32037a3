"""Whether the devices this box is to offer are there, by all who should know: driver tool, bus, driver library."""

from __future__ import annotations

from flodl_probe.device import AMD, NVIDIA
from flodl_probe.facts import Facts, Gpu
from flodl_probe.finding import Finding, error, ok, warning
from flodl_probe.install_words import driver_fix
from flodl_wire import devices as spec
from flodl_wire.devices import CpuDevices, GpuDevices
from flodl_wire.faults import Refused

CHECK = "devices"
DRIVER = "driver"


def wanted(facts: Facts) -> spec.Devices | None:
    """What is asked for; None when it cannot be read (another check says so)."""
    try:
        return spec.parse(facts.asked.devices, "devices")
    except Refused:
        return None


def offered(facts: Facts) -> list[Gpu]:
    """The GPUs of this box that the question means."""
    asked = wanted(facts)
    if not isinstance(asked, GpuDevices):
        return []
    return [gpu for gpu in facts.gpus if asked.indices is None or gpu.index in asked.indices]


def offers_gpus(facts: Facts) -> bool:
    return facts.asked.role != "controller" and isinstance(wanted(facts), GpuDevices)


def check_devices(facts: Facts) -> list[Finding]:
    """Every way in which there is no usable device."""
    if facts.asked.role == "controller":
        return []
    try:
        asked = spec.parse(facts.asked.devices, "devices")
    except Refused as fault:
        return [error(CHECK, fault.what, fault.why, fault.fix)]
    if isinstance(asked, CpuDevices):
        cores = facts.box.cores
        if cores is not None and asked.count > cores:
            return [
                warning(
                    CHECK,
                    f"{asked.count} ranks share {cores} cores",
                    "they take turns",
                    f"offer cpu:{cores} at most",
                )
            ]
        return [ok(CHECK, f"{asked.count} ranks on the processor ({cores or '?'} cores)")]
    if not facts.gpus:
        return [_none(facts)]
    found = []
    missing = sorted(set(asked.indices or []) - {gpu.index for gpu in facts.gpus})
    if missing:
        there = ", ".join(str(gpu.index) for gpu in facts.gpus)
        found.append(
            error(
                CHECK,
                f"GPU {', '.join(map(str, missing))} is not here",
                f"visible are {there}",
                "mend local_devices (indices count in PCI order), or the visibility mask",
            )
        )
    found += [ok(CHECK, note) if _is_everyday(note) else warning(CHECK, note) for note in facts.gpu_notes]
    found += [
        error(
            CHECK,
            f"GPU {gpu.index} is cut into slices (MIG)",
            "flodl offers whole GPUs",
            f"sudo nvidia-smi -i {gpu.index} -mig 0",
        )
        for gpu in offered(facts)
        if gpu.mig
    ]
    return [*found, ok(CHECK, ", ".join(gpu.label() for gpu in offered(facts)))]


def _cpu_fix(facts: Facts) -> str:
    way = {"worker": "local_devices: cpu:2", "walk-in": "devices: cpu:2"}.get(facts.asked.role, "--devices cpu:2")
    return f"to train on the processor say so: {way}"


def _is_everyday(note: str) -> bool:
    """A mask that somebody set, or a processor's graphics unit beside a card: said, and no reason to worry."""
    return note.startswith("beside the NVIDIA GPUs") or note.endswith("GPUs visible")


def _none(facts: Facts) -> Finding:
    """Why there is no GPU: what the drivers said, what is on the bus, else that it is no such box."""
    box, why, fix = facts.box, "; ".join(facts.gpu_notes), ""
    cards = [card for card in facts.cards if card.vendor == NVIDIA] or facts.cards
    if cards:
        which = f"{cards[0].vendor.upper() if cards[0].vendor == AMD else 'NVIDIA'} card {cards[0].pci}"
        if cards[0].vendor == NVIDIA:
            bound = f"the driver {cards[0].driver} holds it" if cards[0].driver else "no driver holds it"
            why = why or f"the bus has an {which}, and neither NVML nor nvidia-smi lists it ({bound})"
            fix = driver_fix(box.manager, box.root, bool(box.container))
        else:
            why = why or f"the bus has an {which}, and the kernel's KFD does not list it"
            fix = "load the module amdgpu; in a container pass --device /dev/kfd --device /dev/dri"
    elif facts.driver.cuda_devices:
        why = why or f"the CUDA library sees {facts.driver.cuda_devices}, and neither NVML nor nvidia-smi lists any"
        fix = "put the driver's own tools on PATH (in WSL: /usr/lib/wsl/lib)"
    why = why or "no driver lists one, and none is on the bus"
    return error(CHECK, "no usable GPU", why, fix or _cpu_fix(facts))


def check_driver_agreement(facts: Facts) -> list[Finding]:
    """The CUDA library (which is what torch asks) and the driver's lists must agree, card by card."""
    if not offers_gpus(facts):
        return []
    nvidia = [gpu for gpu in facts.gpus if gpu.vendor == NVIDIA]
    driver = facts.driver
    found = []
    if driver.cuda_error:
        found.append(error(DRIVER, "the CUDA library cannot start", driver.cuda_error, "torch would see no GPU"))
    elif nvidia and driver.cuda_devices is None and not facts.asked.docker:
        found.append(
            error(
                DRIVER,
                "libcuda is not here",
                f"the driver lists {len(nvidia)} GPUs, and the library that torch asks is missing",
                "in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility; else install the driver's compute part",
            )
        )
    elif nvidia and driver.cuda_devices != len(nvidia):
        found.append(
            error(
                DRIVER,
                f"torch will see {driver.cuda_devices} GPUs, the driver lists {len(nvidia)}",
                "their views differ",
                "look at CUDA_VISIBLE_DEVICES, MIG, and the container's device list",
            )
        )
    on_bus = sum(card.vendor == NVIDIA for card in facts.cards)
    if nvidia and on_bus > len(nvidia) and not facts.box.container and not facts.gpu_notes:
        found.append(
            warning(
                DRIVER,
                f"the bus has {on_bus} NVIDIA cards, the driver lists {len(nvidia)}",
                "one may have failed, or belong to a virtual machine",
                "sudo dmesg | grep -i -e nvrm -e xid",
            )
        )
    if not found and nvidia:
        version = driver.version or "of unknown version"
        return [ok(DRIVER, f"NVIDIA driver {version}, CUDA up to {driver.cuda or '?'}")]
    return found

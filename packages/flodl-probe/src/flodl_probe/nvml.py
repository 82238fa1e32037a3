"""NVIDIA GPUs by NVML, the driver's own library, through ctypes: no third-party package, no process, no GPU context.

A driver in trouble can hang or crash whoever asks it, so `query` asks in a forked child and listens for so long.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from flodl_probe.child_answer import NoAnswer, from_child
from flodl_probe.device import NVIDIA, Device, pci_address
from flodl_wire import deadlines

LIBRARIES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
PATIENCE = 30.0  # seconds; the first call after boot wakes every card up
MAX_CARDS = 256

_ERRORS = {  # nvmlReturn_t
    3: "not supported",
    4: "no permission",
    9: "the NVIDIA driver is not loaded",
    12: "the library was not found",
    13: "a function is missing: driver and library are of different versions",
    15: "a GPU has fallen off the bus",
    18: "driver and library are of different versions: reboot, or reload the kernel module",
}


Answer = dict[str, list[Any]]  # devices: rows for Device; notes: sentences


class NvmlError(Exception):
    """A call that NVML refused."""


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t as nvmlDeviceGetPciInfo_v3 fills it."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def query(load: Callable[[], ctypes.CDLL | None] | None = None) -> tuple[list[Device], list[str]] | None:
    """The devices NVML lists and what is to be said; None where there is no NVML. Never raises.

    `load` gives the library (tests hand in their own).
    """
    library = (load or find_library)()
    if library is None:
        return None
    try:
        answer = from_child(lambda: _listing(library), deadlines.deadline(PATIENCE))
    except NoAnswer as err:
        return [], [f"NVML {err}" + (": the driver may hang" if err.hung else "")]
    return [Device(vendor=NVIDIA, **row) for row in answer["devices"]], answer["notes"]


def find_library() -> ctypes.CDLL | None:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _listing(library: ctypes.CDLL) -> Answer:
    """Everything NVML tells of its cards, as plain values. A question a card does not answer leaves None."""
    notes: list[str] = []
    call(library, "nvmlInit_v2")
    count = ctypes.c_uint()
    call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    devices = []
    for index in range(min(count.value, MAX_CARDS)):
        handle = ctypes.c_void_p()
        try:
            call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        except NvmlError as err:
            notes.append(f"GPU {index} cannot be asked: {err}")
            continue
        devices.append(_card(library, handle, index))
    return {"devices": devices, "notes": notes}


def _card(library: ctypes.CDLL, handle: ctypes.c_void_p, index: int) -> dict[str, object]:
    pci, memory = _PciInfo(), Memory()
    major, minor = ctypes.c_int(), ctypes.c_int()
    row: dict[str, object] = dict.fromkeys(("uuid", "pci", "name", "arch", "memory_bytes"))
    row["index"] = index
    row["uuid"] = _text(library, "nvmlDeviceGetUUID", handle)
    row["name"] = _text(library, "nvmlDeviceGetName", handle)
    if answers(library, "nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci)):
        row["pci"] = pci_address(bytes(pci.bus_id).decode("ascii", "replace"))
    if answers(library, "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor)):
        row["arch"] = f"sm{major.value}{minor.value}"
    if answers(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory)) and memory.total:
        row["memory_bytes"] = memory.total
    return row


def _text(library: ctypes.CDLL, function: str, handle: ctypes.c_void_p) -> str | None:
    buffer = ctypes.create_string_buffer(96)
    if not answers(library, function, handle, buffer, ctypes.c_uint(len(buffer))):
        return None
    return buffer.value.decode("utf-8", "replace") or None


def answers(library: ctypes.CDLL, function: str, *arguments: object) -> bool:
    try:
        call(library, function, *arguments)
    except NvmlError:
        return False
    return True


def call(library: ctypes.CDLL, function: str, *arguments: object) -> None:
    try:
        code = int(getattr(library, function)(*arguments))
    except AttributeError:
        raise NvmlError(f"the library has no {function}") from None
    if code:
        raise NvmlError(_ERRORS.get(code, f"error {code}"))

"""How the NVIDIA GPUs are: memory in use, ECC errors, throttling, who computes on them. By NVML, else by nvidia-smi."""

from __future__ import annotations

import csv
import ctypes
from collections.abc import Callable
from typing import Any

from flodl_probe import nvidia_smi, nvml
from flodl_probe.child_answer import NoAnswer, from_child
from flodl_probe.facts import Driver, Gpu, GpuProcess
from flodl_wire import deadlines

# nvmlClocksThrottleReason*: those that mean trouble. Idle, application clocks and the power cap are everyday.
THROTTLE = {
    0x08: "hardware slowdown (too hot, or too little power)",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "the power supply asked it to (power brake)",
}
GPU_FIELDS = (
    "uuid",
    "memory.used",
    "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.active",
    "driver_version",
    "mig.mode.current",
)
APP_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")
_PATIENCE = 30.0
_MAX_PROCESSES = 256


class _Process(ctypes.Structure):
    """nvmlProcessInfo_v2_t, which the _v3 call fills."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


Health = tuple[dict[str, dict[str, Any]], list[GpuProcess], Driver]


def read(load: Callable[[], ctypes.CDLL | None] | None = None) -> Health:
    """By UUID what `Gpu` has beyond the inventory; the processes; the driver. Never raises."""
    library = (load or nvml.find_library)()
    if library is not None:
        try:
            told = from_child(lambda: _told(library), deadlines.deadline(_PATIENCE))
        except NoAnswer:  # the inventory has said so
            pass
        else:
            if told["cards"]:
                processes = [GpuProcess(*row) for row in told["processes"]]
                return told["cards"], processes, Driver(told["driver"], told["cuda"])
    return by_smi()


def apply(gpus: list[Gpu], cards: dict[str, dict[str, Any]]) -> None:
    for gpu in gpus:
        for key, value in cards.get(gpu.uuid or "", {}).items():
            setattr(gpu, key, value)


def _told(library: ctypes.CDLL) -> dict[str, Any]:
    nvml.call(library, "nvmlInit_v2")
    text, number, count = ctypes.create_string_buffer(96), ctypes.c_int(), ctypes.c_uint()
    told: dict[str, Any] = {"driver": None, "cuda": None, "cards": {}, "processes": []}
    if nvml.answers(library, "nvmlSystemGetDriverVersion", text, ctypes.c_uint(len(text))):
        told["driver"] = text.value.decode("utf-8", "replace") or None
    if nvml.answers(library, "nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(number)) and number.value > 0:
        told["cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    nvml.call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    for index in range(min(count.value, nvml.MAX_CARDS)):
        card = ctypes.c_void_p()
        uuid = ctypes.create_string_buffer(96)
        if nvml.answers(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(card)) and (
            nvml.answers(library, "nvmlDeviceGetUUID", card, uuid, ctypes.c_uint(len(uuid)))
        ):
            name = uuid.value.decode("utf-8", "replace")
            told["cards"][name] = _card(library, card)
            told["processes"] += [[name, *row] for row in _processes(library, card)]
    return told


def _card(library: ctypes.CDLL, card: ctypes.c_void_p) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    memory = nvml.Memory()
    if nvml.answers(library, "nvmlDeviceGetMemoryInfo", card, ctypes.byref(memory)) and memory.total:
        facts["used_bytes"] = memory.used
    errors = ctypes.c_ulonglong()
    uncorrected, volatile = ctypes.c_uint(1), ctypes.c_uint(0)
    if nvml.answers(library, "nvmlDeviceGetTotalEccErrors", card, uncorrected, volatile, ctypes.byref(errors)):
        facts["ecc_uncorrected"] = errors.value
    reasons = ctypes.c_ulonglong()
    if nvml.answers(library, "nvmlDeviceGetCurrentClocksThrottleReasons", card, ctypes.byref(reasons)):
        facts["throttle"] = throttle_words(reasons.value)
    rows = [ctypes.c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
    if nvml.answers(library, "nvmlDeviceGetRemappedRows", card, *map(ctypes.byref, rows)):
        facts["remap_pending"] = bool(rows[2].value)
    now, later = ctypes.c_uint(), ctypes.c_uint()
    if nvml.answers(library, "nvmlDeviceGetMigMode", card, ctypes.byref(now), ctypes.byref(later)):
        facts["mig"] = now.value == 1
    return facts


def _processes(library: ctypes.CDLL, card: ctypes.c_void_p) -> list[list[Any]]:
    count, table = ctypes.c_uint(_MAX_PROCESSES), (_Process * _MAX_PROCESSES)()
    if not nvml.answers(library, "nvmlDeviceGetComputeRunningProcesses_v3", card, ctypes.byref(count), table):
        return []
    rows = table[: min(count.value, _MAX_PROCESSES)]
    unknown = (1 << 64) - 1
    return [[row.pid, process_name(row.pid), None if row.used == unknown else row.used] for row in rows]


def process_name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:  # of another container, or gone
        return ""


def throttle_words(bits: int) -> list[str]:
    return [words for bit, words in THROTTLE.items() if bits & bit]


def by_smi() -> Health:
    """The same from nvidia-smi's tables; empty where there is none."""
    path, _ = nvidia_smi.find()
    if path is None:
        return {}, [], Driver()
    gpus = nvidia_smi.table(path, f"--query-gpu={','.join(GPU_FIELDS)}")
    apps = nvidia_smi.table(path, f"--query-compute-apps={','.join(APP_FIELDS)}") if gpus else ""
    cards, driver = parse_cards(gpus)
    return cards, parse_processes(apps), Driver(driver)


def parse_cards(text: str) -> tuple[dict[str, dict[str, Any]], str | None]:
    """By UUID what the table of GPU_FIELDS says, and the driver's version. Lines that are no rows are passed over."""
    cards: dict[str, dict[str, Any]] = {}
    driver = None
    for cells in rows(text, len(GPU_FIELDS)):
        uuid, used, ecc, reasons, version, mig = cells
        if not uuid.startswith("GPU-"):
            continue
        facts: dict[str, Any] = {}
        if (megabytes := _number(used)) is not None:
            facts["used_bytes"] = megabytes << 20
        if (errors := _number(ecc)) is not None:
            facts["ecc_uncorrected"] = errors
        if (bits := _number(reasons, 16)) is not None:
            facts["throttle"] = throttle_words(bits)
        if mig in ("Enabled", "Disabled"):
            facts["mig"] = mig == "Enabled"
        cards[uuid] = facts
        if version[:1].isdigit():
            driver = version
    return cards, driver


def parse_processes(text: str) -> list[GpuProcess]:
    found = []
    for uuid, pid, used, name in rows(text, len(APP_FIELDS)):
        number = _number(pid)
        if number is not None and uuid.startswith(("GPU-", "MIG-")):
            megabytes = _number(used)
            found.append(GpuProcess(uuid, number, name, None if megabytes is None else megabytes << 20))
    return found


def rows(text: str, width: int) -> list[list[str]]:
    """The lines of `text` that have `width` cells; the last cell takes what is left over."""
    found = []
    for line in text.splitlines():
        try:
            cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
        except csv.Error:
            continue
        if len(cells) >= width:
            found.append([*cells[: width - 1], ", ".join(cells[width - 1 :])])
    return found


def _number(cell: str, base: int = 10) -> int | None:
    """`cell` as a number of at most 16 digits; None for [N/A] and the like. Units behind it are dropped."""
    word = cell.partition(" ")[0].removeprefix("0x") if base == 16 else cell.partition(" ")[0]
    if not word or len(word) > 16 or not word.isascii() or not word.isalnum():
        return None
    try:
        return int(word, base)
    except ValueError:
        return None

"""NVIDIA GPUs as `nvidia-smi` lists them, and everything it prints instead of a list.

The table is read line by line: drivers print warnings between the rows, write [Not Supported] or [N/A] into cells, and
an older one refuses `compute_cap` altogether.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess

from flodl_probe import login_shell
from flodl_probe.device import NVIDIA, Device, pci_address
from flodl_wire import deadlines

FIELDS = ("index", "uuid", "pci.bus_id", "name", "compute_cap", "memory.total")
OLDER_FIELDS = tuple(field for field in FIELDS if field != "compute_cap")  # before driver 470
PATIENCE = 30.0  # seconds; the first call after boot wakes every card up
MAX_OUTPUT = 1 << 20

# A non-login shell (ssh host command) may lack the folder that holds the driver's tool.
PLACES = ("/usr/bin", "/usr/local/bin", "/usr/lib/wsl/lib", "/usr/local/nvidia/bin", "/opt/bin")

_EXITS = {  # nvidia-smi's own exit codes, from its manual
    6: "it found no device",
    8: "a card's external power cables are not attached",
    9: "the NVIDIA driver is not loaded",
    12: "the NVIDIA driver's library could not be found",
    13: "the library lacks a function: driver and tool are of different versions",
    14: "a card's infoROM is corrupted",
    15: "a GPU has fallen off the bus",
    18: "driver and library are of different versions: reboot, or reload the kernel module",
}


def find() -> tuple[str | None, str]:
    """Where nvidia-smi is, and a note when it is not on PATH."""
    path = shutil.which("nvidia-smi")
    if path is not None:
        return path, ""
    for folder in PLACES:
        path = f"{folder}/nvidia-smi"
        if os.access(path, os.X_OK):
            return path, f"nvidia-smi was found at {path}, which is not on PATH (non-login shells have a shorter one)"
    path = login_shell.asked("nvidia-smi") if login_shell.by_ssh() else None
    if path is not None:
        return path, f"nvidia-smi was found at {path}, which only the PATH of a login shell holds"
    return None, ""


def query() -> tuple[list[Device], list[str]]:
    """The devices it lists and what is to be said. Empty and silent where there is no nvidia-smi. Never raises."""
    path, note = find()
    notes = [note] if note else []
    if path is None:
        return [], notes
    devices, found, refused_field = _ask(path, FIELDS)
    if refused_field:
        devices, found, _ = _ask(path, OLDER_FIELDS)
    return devices, notes + found


def table(path: str, query: str) -> str:
    """What nvidia-smi prints for `query` ("--query-gpu=…"), errors and all; "" when it cannot be asked."""
    try:
        return _output(path, query)[0]
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _output(path: str, query: str) -> tuple[str, int]:
    """(stdout and stderr together, exit code). Raises OSError, or TimeoutExpired once it has been killed."""
    process = subprocess.Popen(
        [path, query, "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    try:
        output, _ = process.communicate(timeout=deadlines.deadline(PATIENCE))
    except subprocess.TimeoutExpired:
        _end(process)
        raise
    return output[:MAX_OUTPUT].decode("utf-8", "replace"), process.returncode


def _ask(path: str, fields: tuple[str, ...]) -> tuple[list[Device], list[str], bool]:
    try:
        text, code = _output(path, f"--query-gpu={','.join(fields)}")
    except OSError as err:
        return [], [f"nvidia-smi cannot be started: {err.strerror or err}"], False
    except subprocess.TimeoutExpired as err:
        return [], [f"nvidia-smi gave no answer in {err.timeout:.0f} s: the driver may hang"], False
    if code and "is not a valid field to query" in text and "compute_cap" in text:
        return [], [], True
    devices, notes = parse(text, fields)
    if code:
        why = _EXITS.get(code, f"exit code {code}")
        if code < 0:
            why = f"it was ended by signal {-code}"
        if code != 6:  # "no device" is an answer, not a finding
            notes.insert(0, f"nvidia-smi failed: {why}")
    return devices, notes, False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it and what it started, and do not wait for one that sits in the kernel."""
    try:
        os.killpg(process.pid, 9)
        process.communicate(timeout=1)
    except (OSError, subprocess.TimeoutExpired):
        if process.stdout is not None:
            process.stdout.close()


def parse(text: str, fields: tuple[str, ...] = FIELDS) -> tuple[list[Device], list[str]]:
    """The devices in the table `text`; every line that is no row becomes a note (five of them at most)."""
    devices: dict[int, Device] = {}
    notes: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if not words or words.lower() == "no devices were found":
            continue
        device = _row(words, fields)
        if device is None:
            notes.append(f"nvidia-smi says: {words[:200]}")
        elif device.index in devices:
            notes.append(f"nvidia-smi lists GPU {device.index} twice")
        else:
            devices[device.index] = device
    if len(notes) > 5:
        notes[5:] = [f"nvidia-smi says {len(notes) - 5} more lines"]
    return [devices[index] for index in sorted(devices)], notes


def _row(line: str, fields: tuple[str, ...]) -> Device | None:
    """The device of one line; None when it is something else. A name may hold commas: it takes what is left over."""
    try:
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
    except (csv.Error, StopIteration):
        return None
    after = len(fields) - 1 - fields.index("name")
    if len(cells) < len(fields) or not (cells[0].isascii() and cells[0].isdigit()) or len(cells[0]) > 4:
        return None
    pci = pci_address(cells[2])
    if pci is None and _value(cells[2]) is not None:
        return None
    tail = cells[len(cells) - after :]
    capability = _value(tail[0]) if after == 2 else None
    return Device(
        int(cells[0]),
        NVIDIA,
        uuid=_value(cells[1]),
        pci=pci,
        name=_value(", ".join(cells[3 : len(cells) - after])),
        arch=_arch(capability),
        memory_bytes=_mebibytes(_value(tail[-1])),
    )


def _value(cell: str) -> str | None:
    """None for [Not Supported], [N/A], [Unknown Error], N/A and blanks."""
    if not cell or (cell.startswith("[") and cell.endswith("]")) or cell.upper() == "N/A":
        return None
    return cell


def _arch(capability: str | None) -> str | None:
    major, dot, minor = (capability or "").partition(".")
    return f"sm{major}{minor}" if dot and major.isdigit() and minor.isdigit() else None


def _mebibytes(text: str | None) -> int | None:
    word = (text or "").split(" ")[0]
    try:
        value = float(word)
    except ValueError:
        return None
    return int(value * (1 << 20)) if 0 < value < 1 << 40 else None

"""The architectures of the NVIDIA cards in this box: `flodl-probe` where it is installed, else `nvidia-smi`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from flodl_ncclbuild import archs
from flodl_wire import deadlines
from flodl_wire.faults import Refused

PATIENCE = 30.0  # seconds; a driver without persistence mode initialises every card first


def found() -> tuple[tuple[int, ...], str]:
    """(archs, where they came from). Raises Refused, with the flag that names them, when no card tells."""
    looked = []
    for program, ask in (("flodl-probe", _by_probe), ("nvidia-smi", _by_smi)):
        path = _find(program)
        if path is None:
            looked.append(f"{program} is not installed")
            continue
        cards = ask(path)
        if cards:
            return cards, program
        looked.append(f"{program} shows no NVIDIA card")
    raise Refused(
        "no-gpu",
        "cannot tell for which GPUs to build",
        ", ".join(looked),
        'name their compute capabilities, e.g. --archs "6.1;12.0"',
    )


def _by_probe(path: str) -> tuple[int, ...]:
    try:
        devices = json.loads(_ask(path, "devices", "--json"))["devices"]
        names = [str(device["arch"]) for device in devices if device["vendor"] == "nvidia" and device["arch"]]
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(sorted({archs.number(name) for name in names if re.fullmatch(r"sm_?\d{2,3}", name)}))


def _by_smi(path: str) -> tuple[int, ...]:
    """One compute capability a line; warnings and `[Not Supported]` between them are not."""
    lines = _ask(path, "--query-gpu=compute_cap", "--format=csv,noheader").splitlines()
    return tuple(sorted({archs.number(line.strip()) for line in lines if re.fullmatch(r"\d{1,2}\.\d", line.strip())}))


def _find(program: str) -> str | None:
    beside = Path(sys.executable).parent / program
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(program)


def _ask(*command: str) -> str:
    """What it printed when it went well; empty when not: the next one is asked then."""
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadlines.deadline(PATIENCE),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else ""

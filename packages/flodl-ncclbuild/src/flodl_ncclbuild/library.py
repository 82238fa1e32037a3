"""Asking a libnccl for its version, in a process of its own: loading a foreign library runs its code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flodl_wire import deadlines
from flodl_wire.faults import Refused

PATIENCE = 60.0  # seconds; a libnccl is up to 400 MB and may lie on a network disk

_ASK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
version = ctypes.c_int()
code = library.ncclGetVersion(ctypes.byref(version))
print(code, version.value)
"""


def version_of(path: Path) -> tuple[int, int, int]:
    """(major, minor, patch) of the libnccl in `path`. Raises Refused when it is none, cannot be loaded, or crashes."""
    what = f"cannot use {path}"
    if not path.is_file():
        raise Refused("no-library", what, "there is no such file")
    patience = deadlines.deadline(PATIENCE)
    try:
        answer = subprocess.run(
            [sys.executable, "-I", "-c", _ASK, str(path.resolve())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Refused("no-library", what, f"it did not load within {patience:.0f} s") from None
    words = answer.stdout.decode("utf-8", "replace").splitlines()[-1:] or [""]
    if answer.returncode < 0:
        raise Refused("no-library", what, f"loading it ended the process by signal {-answer.returncode}")
    if answer.returncode:
        raise Refused("no-library", what, _reason(answer.stderr.decode("utf-8", "replace")))
    code, _, number = words[0].partition(" ")
    if code != "0" or not number.isdigit():
        raise Refused("no-library", what, f"ncclGetVersion failed with code {code or '?'}")
    return split(int(number))


def split(number: int) -> tuple[int, int, int]:
    """NCCL's integer as a version: 22705 is 2.27.5; before 2.9 it was 2804 for 2.8.4 (NCCL_VERSION in nccl.h)."""
    if number < 10000:
        return number // 1000, number // 100 % 10, number % 100
    return number // 10000, number // 100 % 100, number % 100


def _reason(stderr: str) -> str:
    """The last line of a traceback, without its class."""
    last = (stderr.strip().splitlines() or ["it could not be loaded"])[-1]
    if "ncclGetVersion" in last:
        return "it has no ncclGetVersion: it is no libnccl"
    return last.partition("Error: ")[2] or last

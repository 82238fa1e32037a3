"""What the CUDA driver library counts: torch asks it and nothing else. It can refuse where NVML and nvidia-smi answer.

`cuInit` makes no context and takes no memory of a card.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from flodl_probe.child_answer import NoAnswer, from_child
from flodl_wire import deadlines

LIBRARIES = ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
_PATIENCE = 30.0

_ERRORS = {  # CUresult
    100: "it finds no device",
    101: "it finds an invalid device (the mask names one that is not there)",
    802: "the system is not ready yet: on NVSwitch machines nvidia-fabricmanager must run",
    803: "driver and library are of different versions: reboot, or reload the kernel module",
    804: "this card cannot run with the compatibility library that was found",
    999: "unknown error, often after a suspend: reload nvidia_uvm, or reboot",
}


def read(load: Callable[[], ctypes.CDLL | None] | None = None) -> tuple[int | None, str | None, str]:
    """(devices under the masks of our environment, newest CUDA as "12.8", error in words). (None, None, "") where the
    library is not installed. Never raises.
    """
    library = (load or find)()
    if library is None:
        return None, None, ""
    try:
        count, version, code = from_child(lambda: _ask(library), deadlines.deadline(_PATIENCE))
    except NoAnswer as err:
        return 0, None, f"libcuda {err}"
    cuda = f"{version // 1000}.{version % 1000 // 10}" if version > 0 else None
    return count, cuda, "" if code in (0, 100) else _ERRORS.get(code, f"error {code}")


def find() -> ctypes.CDLL | None:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _ask(library: ctypes.CDLL) -> list[int]:
    count, version = ctypes.c_int(), ctypes.c_int()
    code = int(library.cuInit(0))
    if code == 0:
        code = int(library.cuDeviceGetCount(ctypes.byref(count)))
    library.cuDriverGetVersion(ctypes.byref(version))  # answers without cuInit too
    return [count.value, version.value, code]

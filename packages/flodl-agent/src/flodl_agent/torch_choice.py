"""Which libtorch variant `auto` or a name means on this box, and that it is there: fetched where it is missing."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

from flodl_agent import torch_build, torch_download
from flodl_agent.torch_build import AUTO, Build
from flodl_agent.torch_download import Say, Where
from flodl_wire import libtorch
from flodl_wire.join_messages import DeviceOffer
from flodl_wire.libtorch import Variant


def acquire(name: str, project: Path, offers: list[DeviceOffer], say: Say) -> Variant:
    """The variant for a walk-in: one that is here, else fetched into ``~/.flodl/libtorch`` and made the active one
    there. Raises Fault.
    """
    build = None
    if name == AUTO:
        build = auto(offers)
        name = build.variant
    if found := libtorch.find(name, project):
        return found
    if name.startswith(("/", "~", "builds/")):
        return libtorch.named(name, project)  # refused with those that there are
    build = build or torch_build.parse(name)
    root = libtorch.roots(None)[-1]
    variant = torch_download.download(build, root, Where(), say)
    torch_download.activate(root, build.variant)
    return variant


def auto(offers: list[DeviceOffer]) -> Build:
    """The build for these devices. Raises Refused when none covers them."""
    return torch_build.for_devices(offers, newest_cuda(), installed_rocm())


def newest_cuda() -> str:
    """The newest CUDA that the driver runs, "12.8"; "" where there is no driver. Makes no context."""
    for name in ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"):
        try:
            version = ctypes.c_int()
            if ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value:
                return f"{version.value // 1000}.{version.value % 1000 // 10}"
        except (OSError, AttributeError):
            continue
    return ""


def installed_rocm() -> str:
    """ "6.4.1" as the system's ROCm says it, "" where there is none."""
    places = [os.environ[name] for name in ("ROCM_PATH", "HIP_PATH", "HSA_PATH") if os.environ.get(name)]
    for place in [*places, "/opt/rocm"]:
        try:
            found = re.match(r"\d+(?:\.\d+)+", Path(place, ".info/version").read_text("utf-8", "replace"))
        except OSError:
            continue
        if found:
            return found[0]
    return ""

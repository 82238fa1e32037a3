"""`--gpus` and the GPUs of this box: what a command may see.

Counting is left to `flodl-probe devices --json`; on a box with no trace of a GPU driver it is not even started.
"""

from __future__ import annotations

import json
import os
import subprocess

from flodl_cli import sibling
from flodl_wire import exits
from flodl_wire.devices import Devices, parse
from flodl_wire.faults import Broken, Refused

PROBE_SECONDS = 60  # a driver that wakes up eight cards can take half a minute

_TRACES = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia", "/dev/kfd", "/dev/dxg")


def read(spec: str) -> Devices:
    """The devices that `--gpus SPEC` names. Raises Refused."""
    try:
        return parse(spec, "--gpus")
    except Refused as fault:
        fault.exit_code = exits.USAGE
        raise


def mask(indices: list[int]) -> dict[str, str]:
    """The environment in which only the GPUs `indices` are visible, counted as nvidia-smi does. [] hides all."""
    listed = ",".join(map(str, indices)) if indices else "-1"
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": listed}


def visible() -> list[int]:
    """The indices of the GPUs that this box has and the environment lets through, in order.

    Raises Refused when flodl-probe is needed and not installed, Broken when it does not answer.
    """
    if not _may_have_gpus():
        return []
    probe = sibling.require("flodl-probe", "flodl-probe", "count the GPUs of this box")
    try:
        answer = subprocess.run(
            [probe, "devices", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=PROBE_SECONDS,
            check=False,
        )
        return [int(device["index"]) for device in json.loads(answer.stdout)["devices"]]
    except subprocess.TimeoutExpired:
        why = f"flodl-probe gave no answer in {PROBE_SECONDS} s"
    except (OSError, ValueError, KeyError, TypeError) as err:
        why = f"flodl-probe answered nothing that can be read: {err}"
    raise Broken(
        "no-probe", "cannot count the GPUs of this box", why, "name them (--gpus 0,1), or take CPU ranks (--gpus cpu:2)"
    )


def check_present(indices: list[int], way_on: str) -> None:
    """Raises Refused when `indices` names a GPU that is not visible here: behind a mask of nothing the command would
    train on the processor without a word. Where the GPUs cannot be counted the user's word stands.
    """
    try:
        found = visible()
    except Broken:
        return
    absent = [index for index in indices if index not in found]
    if absent:
        listed, have = (", ".join(map(str, indices)) for indices in (absent, found))
        raise Refused("no-device", f"cannot use GPU {listed}", f"GPUs visible on this box: {have or 'none'}", way_on)


def _may_have_gpus() -> bool:
    """False when no driver left a trace here: then there is nothing to ask."""
    return any(os.path.exists(path) for path in _TRACES) or sibling.find("nvidia-smi") is not None

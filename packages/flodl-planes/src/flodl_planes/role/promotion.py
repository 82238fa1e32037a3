"""A script run by hand on a box with several GPUs becomes a cluster of one host, so that all of them train."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from flodl_wire import environ

_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


def cluster_of_this_box() -> str | None:
    """The single-host topology as hex JSON when two or more GPUs are visible and this is a script run by hand; else
    None."""
    if not _run_by_hand():
        return None
    gpus = visible_gpus()
    if len(gpus) < 2:
        return None
    from flodl_wire import blob
    from flodl_wire.config import Cluster, Controller, Worker

    here = str(Path.cwd())
    host = os.environ.get(environ.HOST_NAME) or socket.gethostname()
    worker = Worker(host=host, local_devices=gpus, path=here, nccl_socket_ifname="lo")
    return blob.encode(Cluster(controller=Controller(host="127.0.0.1", path=here), workers=[worker]))


def _run_by_hand() -> bool:
    """Not a notebook or prompt (an exec would end them), not a child of a DataLoader, not a rank of torchrun or
    mpirun."""
    interactive = hasattr(sys, "ps1") or sys.flags.interactive or len(sys.orig_argv) < 2
    child = multiprocessing.parent_process() is not None
    foreign = any(
        name in os.environ for name in ("TORCHELASTIC_RUN_ID", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID")
    )
    return not (interactive or child or foreign or "ipykernel" in sys.modules)


def visible_gpus() -> list[int]:
    """Physical indices of the GPUs this process may use, in PCI order, the visibility masks respected. Asks no
    torch."""
    count = _nvidia_count()
    masks = (
        ("CUDA_VISIBLE_DEVICES",) if count else ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    )
    indices = list(range(count or _amd_count()))
    for mask in masks:
        text = os.environ.get(mask)
        if text is not None:
            parts = [part.strip() for part in text.split(",") if part.strip()]
            if not all(part.isascii() and part.isdigit() for part in parts):
                return []  # named by UUID or MIG: whoever writes that has their own plan for this process
            return [int(part) for part in parts if int(part) in indices]
    return indices


def _nvidia_count() -> int:
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        listing = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listing.splitlines())


def _amd_count() -> int:
    """GPU nodes of the ROCm kernel driver: those with SIMD units (a processor's node has none)."""
    count = 0
    for path in sorted(_KFD.glob("*/properties")):
        try:
            count += any(
                line.startswith("simd_count ") and line.split()[1] != "0" for line in path.read_text().splitlines()
            )
        except OSError:
            continue
    return count

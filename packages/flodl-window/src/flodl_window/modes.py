"""Which averaging modes a roster can run, and which one it gets when nobody says."""

from __future__ import annotations

from flodl_wire import devices
from flodl_wire.config import MODES, Cluster
from flodl_wire.faults import Refused

NCCL_MODES = ("nccl_sync", "nccl_cadence")
CPU_MODES = ("cpu_sync", "cpu_cadence", "cpu_async")
TORCH = "torch"  # any torch script: the hub serves its store and averages nothing


def is_nccl(mode: str) -> bool:
    return mode in NCCL_MODES


def has_cpu_devices(cluster: Cluster) -> list[str]:
    """The hosts whose ranks run on the processor."""
    return [
        worker.host
        for worker in cluster.workers
        if isinstance(devices.parse(worker.local_devices, "local_devices"), devices.CpuDevices)
    ]


def choose(asked: str | None, cluster: Cluster) -> tuple[str, str]:
    """The run's mode and a note for people ("" when there is nothing to say).

    Dashes are taken for underscores. Raises Refused for a word that is no mode, and a mode the roster's devices cannot
    do.
    """
    if asked is None:
        tunnels = any(worker.tunnel for worker in cluster.workers)
        gpus = bool(cluster.workers) and not has_cpu_devices(cluster)
        return ("nccl_cadence", "") if gpus and not tunnels else ("cpu_cadence", "")
    mode = asked.replace("-", "_")
    if mode not in MODES:
        raise Refused(
            "bad-mode", f"cannot run mode {asked!r}", "there is no such mode", f"use one of {', '.join(MODES)}"
        )
    if is_nccl(mode):
        on_cpu = has_cpu_devices(cluster)
        if on_cpu and len(on_cpu) < len(cluster.workers):
            raise Refused(
                "mode-needs-gpus",
                f"cannot run mode {mode}",
                f"NCCL moves tensors between GPUs, and the ranks on {', '.join(on_cpu)} run on the processor",
                "use cpu_cadence, which mixes them",
            )
        if on_cpu:
            return mode, "the ranks run on the processor: gloo takes NCCL's place"
    return mode, ""

"""Which averaging modes a roster can run, which one it gets when nobody says, and which ones this version does not
have yet.
"""

from __future__ import annotations

from flodl_wire import devices
from flodl_wire.config import MODES, Cluster
from flodl_wire.faults import Refused

NCCL_MODES = ("nccl_sync", "nccl_cadence")
CPU_MODES = ("cpu_sync", "cpu_cadence", "cpu_async")
TORCH = "torch"  # any torch script: the hub serves its store and averages nothing

# What users may write and this version cannot do yet; each entry goes when its work lands.
NOT_YET: dict[str, str] = {
    "nccl_sync": "use cpu_sync, or mode torch for a script that calls torch.distributed itself",
    "nccl_cadence": "use cpu_cadence, or mode torch for a script that calls torch.distributed itself",
}


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

    Dashes are taken for underscores. Raises Refused for a word that is no mode, a mode the roster's devices cannot
    do, and one this version does not have.
    """
    if asked is None:
        if cluster.workers and not has_cpu_devices(cluster) and "nccl_cadence" not in NOT_YET:
            return "nccl_cadence", ""
        note = (
            ""
            if has_cpu_devices(cluster)
            else "averaging goes through the controller; NCCL modes come in a later version"
        )
        return "cpu_cadence", note
    mode = asked.replace("-", "_")
    if mode not in MODES:
        raise Refused(
            "bad-mode", f"cannot run mode {asked!r}", "there is no such mode", f"use one of {', '.join(MODES)}"
        )
    if is_nccl(mode):
        on_cpu = has_cpu_devices(cluster)
        if on_cpu:
            raise Refused(
                "mode-needs-gpus",
                f"cannot run mode {mode}",
                f"NCCL moves tensors between GPUs, and the ranks on {', '.join(on_cpu)} run on the processor",
                "use cpu_cadence",
            )
    if mode in NOT_YET:
        raise Refused("mode-not-yet", f"cannot run mode {mode}", "it is not available in this version", NOT_YET[mode])
    return mode, ""

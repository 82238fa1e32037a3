"""Where am I in the run? One answer for a rank of a world, for a rank of mode torch, and for a script run alone."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flodl_planes.role import fault_hook
from flodl_wire import blob, environ
from flodl_wire.devices import GpuDevices
from flodl_wire.faults import Broken
from flodl_wire.specs import Envelope


@dataclass(frozen=True)
class LocalCluster:
    """A rank's place, as `local_cluster` returns it.

    `device` is a word for ``torch.device``: each rank is masked to its one GPU, so that is ``cuda:0`` (in mode
    torch, where all GPUs of the host stay visible, ``cuda:<local_rank>``). `data_path` is this host's data root or
    None; `cache_path` a folder of this host's own that exists and survives runs; `gpu_ram_share` the share of memory
    a rank may take on an integrated GPU.
    """

    host: str
    rank: int
    local_rank: int
    world_size: int
    device: str
    data_path: str | None
    cache_path: str
    gpu_ram_share: float | None
    mode: str | None = None  # None alone
    run: str | None = None

    @property
    def alone(self) -> bool:
        """True when this process belongs to no world: ``python train.py`` and nothing else."""
        return self.run is None


def local_cluster() -> LocalCluster:
    """This process's place in its run. Raises Broken when the environment that an agent should have made does not
    hold together. From now on a fault that the script does not catch ends it in words (fault_hook.py)."""
    fault_hook.install()
    envelope = read_envelope()
    if envelope is None:
        return LocalCluster(
            host=os.environ.get(environ.HOST_NAME) or socket.gethostname(),
            rank=0,
            local_rank=0,
            world_size=1,
            device=_own_device(),
            data_path=os.environ.get(environ.DATA_PATH) or None,
            cache_path=_cache_path(),
            gpu_ram_share=None,
        )
    worker, local_rank = envelope.worker, read_local_rank(envelope)
    gpu = isinstance(worker.local_devices, GpuDevices)
    index = local_rank if envelope.mode == "torch" else 0
    return LocalCluster(
        host=worker.host,
        rank=worker.ranks[local_rank],
        local_rank=local_rank,
        world_size=envelope.world_size,
        device=f"cuda:{index}" if gpu else "cpu",
        data_path=worker.data_path or os.environ.get(environ.DATA_PATH) or None,
        cache_path=_cache_path(),
        gpu_ram_share=worker.gpu_ram_share,
        mode=envelope.mode,
        run=envelope.run,
    )


def read_envelope() -> Envelope | None:
    """The envelope in the environment, None for a script run alone."""
    text = os.environ.get(environ.CLUSTER_JSON)
    return None if text is None else blob.decode(text, Envelope, environ.CLUSTER_JSON)


def read_local_rank(envelope: Envelope) -> int:
    """This rank's index inside its host. Raises Broken when it does not fit the envelope."""
    text = os.environ.get(environ.LOCAL_RANK, "")
    if not (text.isascii() and text.isdigit() and int(text) < len(envelope.worker.ranks)):
        raise Broken(
            "bad-local-rank",
            f"cannot tell which rank this is from {environ.LOCAL_RANK}={text!r}",
            f"{envelope.worker.host} has the ranks {envelope.worker.ranks}",
            "an agent sets it for each rank; do not set it yourself",
        )
    return int(text)


def _cache_path() -> str:
    path = Path.home() / ".flodl" / "data"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        pass  # a read-only home is the user's to mend, and only if they use the folder
    return str(path)


@cache
def _own_device() -> str:
    """The device of a script run alone. torch is asked only where a GPU's driver has left a trace, or torch is
    loaded anyway."""
    traces = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    if "torch" not in sys.modules and not any(Path(trace).exists() for trace in traces):
        return "cpu"
    try:
        import torch
    except ModuleNotFoundError:
        return "cpu"
    return "cuda:0" if torch.cuda.is_available() else "cpu"

"""The ``cluster:`` block written in Python: the same keys, the same refusals, the same envelope as from YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from flodl_wire import blob, environ
from flodl_wire.config import Cluster, parse_cluster


class ClusterBuilder:
    """A cluster in the making; every method but the last two returns the builder.

        cluster = (
            ClusterBuilder("192.168.1.10", path="/home/me/digits")
            .worker("desk", local_devices="cpu:2", nccl_socket_ifname="eth0")
            .worker("tower", local_devices="all", path="/srv/digits", nccl_socket_ifname="enp1s0")
            .env(NCCL_DEBUG="INFO")
        )
        cluster.export()
        Trainer(...).run()

    Keywords are the keys of the block (docs/manifest.md). Nothing is checked before `build`, so that the order of the
    calls does not matter.
    """

    def __init__(self, host: str, path: str, **controller: Any) -> None:
        """`host`: the address that workers dial; `path`: the project's folder on this box. Also `port`, `docker`,
        `arch`, `data_path`.
        """
        self._controller: dict[str, Any] = {"host": host, "path": path, **controller}
        self._workers: list[dict[str, Any]] = []
        self._env: dict[str, str] = {}
        self._share: float | None = None

    def window(self, **join: Any) -> ClusterBuilder:
        """Keys of ``controller.join``: `discovery`, `token`, `start`, `min_rank_start` …"""
        self._controller["join"] = {**self._controller.get("join", {}), **join}
        return self

    def worker(
        self, host: str, local_devices: str | int | Sequence[int] = "all", path: str | None = None, **keys: Any
    ) -> ClusterBuilder:
        """A host, behind those before it: ranks are numbered in this order. `path` is the controller's unless said.
        Further `keys`: `nccl_socket_ifname`, `ssh` (a dict of its keys), `env`, `docker`, `arch`, `data_path`,
        `gpu_ram_share`, `tunnel`.
        """
        devices = local_devices if isinstance(local_devices, (str, int)) else list(local_devices)
        worker = {"host": host, "local_devices": devices, "path": self._controller["path"] if path is None else path}
        self._workers.append({**worker, **keys})
        return self

    def env(self, variables: Mapping[str, str] | None = None, /, **more: str) -> ClusterBuilder:
        """Set on every rank of every host."""
        self._env |= {**(variables or {}), **more}
        return self

    def gpu_ram_share(self, share: float) -> ClusterBuilder:
        """The default of the workers' key."""
        self._share = share
        return self

    def build(self) -> Cluster:
        """The cluster. Raises Refused with the path of the first wrong key, as for a file."""
        block: dict[str, Any] = {"controller": self._controller, "workers": self._workers, "env": self._env}
        if self._share is not None:
            block["gpu_ram_share"] = self._share
        return parse_cluster(block)

    def envelope(self) -> str:
        """What fdl would put into the environment: hex JSON (protocol E-1). Raises Refused."""
        return blob.encode(self.build())

    def export(self, environment: MutableMapping[str, str] | None = None) -> bool:
        """Let the next `dispatch()`, or the Trainer, open this cluster's window; say it before torch is imported.

        In a process that has a role in a run already (the ranks run this very script) it does nothing and returns
        False. Raises Refused.
        """
        target = os.environ if environment is None else environment
        if any(name in target for name in (*environ.ROLE_VARIABLES, environ.MODEL_SIG_PROBE)):
            return False
        target[environ.FULL_CLUSTER_JSON] = self.envelope()
        return True

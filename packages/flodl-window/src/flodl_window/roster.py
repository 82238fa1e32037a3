"""The roster: the hosts the config names, in its order, and how each is reached."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from flodl_wire import devices, environ
from flodl_wire.config import Cluster, Worker
from flodl_wire.devices import Devices

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class RosterHost:
    """One host the config names."""

    host: str
    devices: Devices
    local: bool  # this very box: started without ssh, dials loopback
    worker: Worker

    @property
    def inside(self) -> bool:
        """On this very box and in no container: loopback and Unix sockets lead from there to us."""
        return self.local and not self.worker.docker

    @property
    def count(self) -> int | None:
        """Ranks it gives; None when it must be asked."""
        return devices.count(self.devices)


def this_host() -> str:
    """The name this box goes by: FLODL_HOST_NAME, else the OS's."""
    return os.environ.get(environ.HOST_NAME) or socket.gethostname()


def read_roster(cluster: Cluster, here: str) -> list[RosterHost]:
    """The roster of `cluster` as seen from the box called `here`."""
    return [
        RosterHost(
            host=worker.host,
            devices=devices.parse(worker.local_devices, f"cluster.workers[{index}].local_devices"),
            local=worker.host == here or worker.host in LOOPBACK_NAMES,
            worker=worker,
        )
        for index, worker in enumerate(cluster.workers)
    ]

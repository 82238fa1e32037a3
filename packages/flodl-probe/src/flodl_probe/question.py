"""What a box is asked: who it is in the cluster and what it shall offer. It travels on stdin to other boxes.

No token and no salt is ever in it: the road is tried without proving anything.
"""

from __future__ import annotations

from typing import Literal

import msgspec

# alone: no config says more. worker: in the roster. controller: types the command, carries no rank. walk-in: joins by
# its own `join:` block.
Role = Literal["alone", "worker", "controller", "walk-in"]


class Forward(msgspec.Struct, omit_defaults=True):
    """The ssh session through which a walk-in reaches the controller."""

    target: str
    port: int | None = None
    user: str | None = None
    identity_file: str | None = None
    options: list[str] = []


class Question(msgspec.Struct, omit_defaults=True):
    """Everything left out means "not said"."""

    host: str = ""  # this box's name in the config
    role: Role = "alone"
    devices: str = "all"
    local: bool = False  # the box that asks: its agents are started without ssh and dial loopback
    several: bool = False  # the run spans several hosts
    path: str | None = None
    arch: str | None = None  # libtorch variant
    libtorch_path: str | None = None
    docker: str | None = None
    data_path: str | None = None
    data_wanted: bool = True  # look at the default place when no data_path is declared
    skip_mount: bool = False
    nccl_socket_ifname: str | None = None
    env: dict[str, str] = {}  # what its ranks will have set: cluster.env under the worker's own
    controller: str | None = None
    port: int = 1337
    nonce: str | None = None  # a listener of the asking probe answers with it at the controller's port
    dial: str | None = None  # host:port to dial instead (the far end of a tunnel)
    forward: Forward | None = None
    tools: list[str] = []  # what its `join:` block needs
    manifest_hash: str | None = None
    remote_hosts: bool = False  # the controller starts others over ssh
    check_ports: list[int] = []
    deep: bool = False
    patience: float = 30.0  # seconds for the whole answer

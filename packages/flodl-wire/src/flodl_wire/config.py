"""The ``cluster:`` block as users write it, with every key, default and refusal.

`parse_cluster` is the only way in: unknown keys and wrong types are refused with their path, then the rules between
keys are checked. What passes here is what every tool receives in FLODL_INTERNAL_FULL_CLUSTER_JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from flodl_wire import config_refusal, devices, environ, hosts
from flodl_wire.address import DEFAULT_PORT
from flodl_wire.faults import Refused
from flodl_wire.modes import MODES as MODES

TOKEN = re.compile(r"[0-9a-f]{32}\Z")

StartMode = Literal["auto", "manual", "hybrid"]


class JoinWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``controller.join``: how long the window stays open and who may walk in. None means "the default of the
    situation".
    """

    min_rank_start: int | None = None
    join_timeout: float = 300
    target_ranks: int | None = None
    max_join_timeout: float | None = None
    open_admission: bool = False
    discovery: bool = False
    token: str | None = None
    tunnel_only: bool = False
    start: StartMode = "auto"


class Controller(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The box the operator types on; never a rank itself."""

    host: str
    path: str
    port: int = DEFAULT_PORT
    docker: str | None = None
    arch: str | None = None
    data_path: str | None = None
    join: JoinWindow | None = None


class Ssh(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach a worker; everything left out is ssh's own default."""

    target: str | None = None
    port: int | None = None
    user: str | None = None
    identity_file: str | None = None
    options: list[str] = []


class Worker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rank-carrying host."""

    host: str
    local_devices: str | int | list[int]
    path: str
    nccl_socket_ifname: str | None = None
    arch: str | None = None
    docker: str | None = None
    data_path: str | None = None
    gpu_ram_share: float | None = None
    env: dict[str, str] = {}
    ssh: Ssh | None = None
    tunnel: bool = False


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    controller: Controller
    workers: list[Worker] = []
    env: dict[str, str] = {}
    gpu_ram_share: float | None = None


def parse_cluster(data: Any, source: str = "cluster") -> Cluster:
    """The cluster block in `data` (plain dicts and lists), validated. Raises Refused with the path of the first wrong
    key, which starts with `source`.
    """
    workers = data.get("workers") if isinstance(data, dict) else None
    for index, worker in enumerate(workers if isinstance(workers, list) else ()):
        if isinstance(worker, dict) and "ranks" in worker:
            raise Refused(
                "ranks-declared",
                f"cannot use {source}.workers[{index}].ranks",
                "ranks follow from the order of the workers and their devices",
                "delete the key; local_devices says how many ranks a host gives",
            )
    try:
        cluster = msgspec.convert(data, Cluster)
    except msgspec.ValidationError as err:
        raise config_refusal.refusal(str(err), data, source, _KEYS) from None
    try:
        msgspec.json.encode(cluster)  # it will travel as JSON
    except UnicodeEncodeError as err:
        raise Refused(
            "bad-config",
            f"cannot use {source}",
            f"it holds text that is no Unicode ({err.reason})",
            "write the file as UTF-8",
        ) from None
    check_cluster(cluster, source)
    return cluster


_KEYS: dict[str, Iterable[str]] = {
    "": Cluster.__struct_fields__,
    "controller": Controller.__struct_fields__,
    "controller.join": JoinWindow.__struct_fields__,
    "workers[]": Worker.__struct_fields__,
    "workers[].ssh": Ssh.__struct_fields__,
}


def check_cluster(cluster: Cluster, source: str = "cluster") -> None:
    """The rules between keys. Raises Refused naming the key or keys."""

    def refuse(key: str, why: str, fix: str = "", code: str = "bad-config") -> Refused:
        return Refused(code, f"cannot use {source}.{key}", why, fix)

    controller = cluster.controller
    join = controller.join or JoinWindow()
    _check_host(controller.host, refuse, "controller.host")
    if not controller.path.strip():
        raise refuse("controller.path", "it is blank", "name the folder of the project on the controller")
    if not 1 <= controller.port <= 65535:
        raise refuse("controller.port", f"{controller.port} is no TCP port", "use 1 to 65535; the default is 1337")
    if not cluster.workers and not join.discovery:
        raise refuse(
            "workers", "it is empty", "list the hosts, or set controller.join.discovery: true so that workers walk in"
        )
    _check_env(cluster.env, refuse, "env")
    check_share(cluster.gpu_ram_share, refuse, "gpu_ram_share")
    seen: dict[str, int] = {}
    for index, worker in enumerate(cluster.workers):
        key = f"workers[{index}]"
        _check_host(worker.host, refuse, f"{key}.host")
        if worker.host in seen:
            raise refuse(
                f"{key}.host",
                f"{worker.host!r} is workers[{seen[worker.host]}] already",
                "one entry per host; its devices go in local_devices",
            )
        seen[worker.host] = index
        devices.parse(worker.local_devices, f"{source}.{key}.local_devices")
        if not worker.path.strip():
            raise refuse(f"{key}.path", "it is blank", "name the folder of the project on that host")
        if len(cluster.workers) > 1 and not (worker.nccl_socket_ifname or "").strip():
            raise refuse(
                f"{key}.nccl_socket_ifname",
                "it is missing, and the cluster spans several hosts",
                "name the interface that reaches the others; `ip -br addr` on that host lists them",
            )
        _check_env(worker.env, refuse, f"{key}.env")
        check_share(worker.gpu_ram_share, refuse, f"{key}.gpu_ram_share")
        if worker.ssh:
            if worker.ssh.target is not None:
                _check_host(worker.ssh.target, refuse, f"{key}.ssh.target")
            if worker.ssh.user is not None:
                _check_host(worker.ssh.user, refuse, f"{key}.ssh.user")
            if any(not option.strip() for option in worker.ssh.options):
                raise refuse(
                    f"{key}.ssh.options", "an option is blank", "write options as ssh's -o takes them: Key=value"
                )
            if worker.ssh.port is not None and not 1 <= worker.ssh.port <= 65535:
                raise refuse(f"{key}.ssh.port", f"{worker.ssh.port} is no TCP port", "use 1 to 65535")


def _check_host(name: str, refuse: Any, key: str) -> None:
    flaw = hosts.flaw(name)
    if flaw:
        raise refuse(key, flaw, "write the host's name or address")


def _check_env(env: dict[str, str], refuse: Any, key: str) -> None:
    for name, value in env.items():
        if not environ.is_valid_name(name):
            raise refuse(
                f"{key}.{name}",
                "it is no name of an environment variable",
                "letters, digits and _ only, no digit first",
            )
        if environ.is_reserved(name):
            raise refuse(
                f"{key}.{name}",
                "flodl sets it for each rank itself",
                "delete the key; local_devices chooses devices",
                "reserved-env",
            )
        if "\0" in value:
            raise refuse(f"{key}.{name}", "its value holds a NUL byte, which no environment can carry", "take it out")


def check_share(share: float | None, refuse: Any, key: str) -> None:
    """Raises ``refuse(key, why, fix)`` for what is no share of an integrated GPU's memory."""
    if share is not None and not (math.isfinite(share) and share >= 0):
        raise refuse(key, f"{share} is no share of memory", "use a finite number, 0 or more, e.g. 0.5")

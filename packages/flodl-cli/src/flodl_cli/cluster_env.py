"""What a cluster command carries to the launcher (seed 002, module `cluster`), and the roster of this box alone."""

from __future__ import annotations

import os

from flodl_wire import blob, deadlines, environ
from flodl_wire.config import Cluster, Controller, Worker, check_cluster
from flodl_wire.devices import Devices, render
from flodl_wire.faults import Refused
from flodl_wire.specs import LaunchConfig

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def prepare(cluster: Cluster, config: LaunchConfig, command: str, env: str | None) -> dict[str, str | None]:
    """Changes to the environment (None = unset) by which the launcher knows its run.

    The salt of the run is never in it: the launcher makes it. Raises Refused for a bad time-out scale.
    """
    deadlines.parse_scale(config.env.get(environ.NET_TIMEOUT_SCALE, os.environ.get(environ.NET_TIMEOUT_SCALE)))
    return {
        # The command's env is for its ranks, and travels in the config: LD_PRELOAD or PYTHONPATH of a script is none of
        # the tools' business. Our own knobs are.
        **{name: value for name, value in config.env.items() if name.startswith("FLODL_")},
        environ.FULL_CLUSTER_JSON: blob.encode(cluster),
        environ.CONFIG_JSON: blob.encode(config),
        environ.FDL_CMD: command,
        environ.FDL_ENV: env,
        environ.HOST_USER: local_user(),
        environ.CLUSTER_EXTRA_HOSTS: extra_hosts(cluster),
        environ.MODE: None,  # the config says it; a leftover of an outer run must not
    }


def is_recursive() -> bool:
    """True inside a rank: its `fdl` must run the command, not open another cluster."""
    return environ.CLUSTER_JSON in os.environ


def local_name() -> str:
    """The name of this box as the roster knows it: FLODL_HOST_NAME, else the system's."""
    return os.environ.get(environ.HOST_NAME) or os.uname().nodename or "localhost"


def local_user() -> str | None:
    """Who is typing, for ssh's default login. None when nobody knows: a made-up name is worse than ssh's own rules."""
    user = os.environ.get("USER")
    if user:
        return user
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name or None
    except KeyError:
        return None


def single_host(devices: Devices, folder: str) -> Cluster:
    """A cluster of this box alone, reached over loopback."""
    worker = Worker(host=local_name(), local_devices=render(devices), path=folder, nccl_socket_ifname="lo")
    cluster = Cluster(controller=Controller(host="127.0.0.1", path=folder), workers=[worker])
    check_cluster(cluster)
    return cluster


def with_local_devices(cluster: Cluster, devices: Devices) -> Cluster:
    """The same cluster with `devices` for this box; others keep theirs. Raises Refused when this box is not in it."""
    import msgspec

    here = local_name()
    workers = [
        msgspec.structs.replace(worker, local_devices=render(devices)) if is_local(worker.host, here) else worker
        for worker in cluster.workers
    ]
    if workers == cluster.workers and not any(is_local(worker.host, here) for worker in workers):
        hosts = ", ".join(worker.host for worker in cluster.workers) or "none"
        raise Refused(
            "not-in-roster",
            "cannot use --gpus here",
            f"it chooses the devices of this box, and {here!r} is not among cluster.workers ({hosts})",
            f"set local_devices of the host you mean, or {environ.HOST_NAME} if this box goes by another name",
        )
    return msgspec.structs.replace(cluster, workers=workers)


def is_local(host: str, here: str) -> bool:
    return host == here or host in _LOOPBACK_NAMES


def extra_hosts(cluster: Cluster) -> str | None:
    """`name:ip` for every host of the cluster as this box resolves it; None unless something runs in a container.

    Only `docker compose --add-host` reads it, and asking a name service that does not answer takes seconds a name.
    """
    import socket

    names = [cluster.controller.host, *(worker.host for worker in cluster.workers)]
    if cluster.controller.docker is None and all(worker.docker is None for worker in cluster.workers):
        return None
    pairs = []
    for name in dict.fromkeys(names):
        try:
            pairs.append(f"{name}:{socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]}")
        except OSError:
            continue  # a name only ssh knows (ssh_config): the container's ssh will not need it either
    return " ".join(pairs) or None

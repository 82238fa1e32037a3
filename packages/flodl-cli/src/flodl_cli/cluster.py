"""What a cluster command carries to the launcher (seed 002, module `cluster`), and the roster of this box alone.

fdl @cluster train
  ↓ fdl.yml and fdl.cluster.yml, merged and checked
  ↓ prepare_cluster_env: the topology, the command's name, the overlay, the user, the hosts of containers
  ↓ flodl-window launch -- <the command>: opens the window, starts an agent on every host
  ↓ a rank finds its own envelope; an fdl inside it runs the command and opens nothing (should_dispatch)
"""

from __future__ import annotations

import os

from flodl_wire import blob, compose, deadlines, environ
from flodl_wire.config import Cluster, Controller, Worker, check_cluster
from flodl_wire.devices import Devices, render
from flodl_wire.faults import Refused
from flodl_wire.specs import LaunchConfig

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def should_dispatch(wanted: bool, cluster: Cluster | None) -> bool:
    """True when a command that wants a cluster has one to open, and is not itself called by a run."""
    return wanted and cluster is not None and not is_recursive_invocation()


def is_recursive_invocation() -> bool:
    """True inside a rank: its `fdl` must run the command, not open another cluster."""
    return environ.CLUSTER_JSON in os.environ


def validate_net_timeout_scale(env: dict[str, str] | None = None) -> None:
    """Raises Refused for a time-out scale that is set and no finite number of 0.1 or more; asked before anything else.
    `env` is the command's own.
    """
    deadlines.parse_scale((env or {}).get(environ.NET_TIMEOUT_SCALE, os.environ.get(environ.NET_TIMEOUT_SCALE)))


def prepare_cluster_env(cluster: Cluster, config: LaunchConfig, command: str, env: str | None) -> dict[str, str | None]:
    """Changes to the environment (None = unset) by which the launcher knows its run.

    The salt of the run is never in it: the launcher makes it. Raises Refused for a bad time-out scale.
    """
    validate_net_timeout_scale(config.env)
    return {
        # The command's env is for its ranks, and travels in the config: LD_PRELOAD or PYTHONPATH of a script is none of
        # the tools' business. Our own knobs are.
        **{name: value for name, value in config.env.items() if name.startswith("FLODL_")},
        environ.FULL_CLUSTER_JSON: blob.encode(cluster),
        environ.CONFIG_JSON: blob.encode(config),
        environ.FDL_CMD: command,
        environ.FDL_ENV: env,
        environ.HOST_USER: resolve_local_user(),
        environ.CLUSTER_EXTRA_HOSTS: extra_hosts(cluster),
        environ.MODE: None,  # the config says it; a leftover of an outer run must not
    }


def prepare_test_cluster_env(cluster: Cluster) -> dict[str, str | None]:
    """For a command that runs here alone under an overlay with a cluster, such as a test suite: the topology to look
    at, under a name that starts nothing.
    """
    return {environ.TESTING_CLUSTER_JSON: blob.encode(cluster)}


def resolve_local_hostname() -> str:
    """The name of this box as the roster knows it: FLODL_HOST_NAME, else the system's."""
    return os.environ.get(environ.HOST_NAME) or os.uname().nodename or "localhost"


def resolve_local_user() -> str | None:
    """Who is typing, for ssh's default login. None when nobody knows: a made-up name is worse than ssh's own rules."""
    user = os.environ.get("USER")
    if user:
        return user
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name or None
    except KeyError:
        return None


def single_host(devices: Devices, folder: str, docker: str | None = None) -> Cluster:
    """A cluster of this box alone, reached over loopback."""
    worker = Worker(
        host=resolve_local_hostname(),
        local_devices=render(devices),
        path=folder,
        nccl_socket_ifname="lo",
        docker=docker,
    )
    cluster = Cluster(controller=Controller(host="127.0.0.1", path=folder), workers=[worker])
    check_cluster(cluster)
    return cluster


def with_local_devices(cluster: Cluster, devices: Devices) -> Cluster:
    """The same cluster with `devices` for this box; others keep theirs. Raises Refused when this box is not in it."""
    import msgspec

    here = resolve_local_hostname()
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

    Only containers read it, and asking a name service that does not answer takes seconds a name: so all at once.
    """
    if cluster.controller.docker is None and all(worker.docker is None for worker in cluster.workers):
        return None
    return " ".join(resolve_hosts([cluster.controller.host, *(worker.host for worker in cluster.workers)])) or None


def resolve_hosts(names: list[str]) -> list[str]:
    """`name:ip` for every name that this box can resolve. Left out: what is an address already, a name that only ssh
    knows (the container's ssh will not need it either), and loopback, which in a container is the container.
    """
    from concurrent.futures import ThreadPoolExecutor

    asked = [name for name in dict.fromkeys(names) if not _is_address(name)]
    with ThreadPoolExecutor(max_workers=min(32, len(asked) or 1)) as pool:
        found = list(pool.map(_address_of, asked))
    return [f"{name}:{address}" for name, address in zip(asked, found, strict=True) if address is not None]


def _address_of(name: str) -> str | None:
    import ipaddress
    import socket

    try:
        address = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None
    return None if ipaddress.ip_address(address.partition("%")[0]).is_loopback else address


def _is_address(name: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cluster_compose_overlay_arg(project_root: str, service: str, pairs: list[str]) -> list[str]:
    """Write the compose file that gives `pairs` to `service` as extra_hosts, and return the `-f` words to put in front
    of `run`; [] when there are no pairs, or no compose file in the folder to lay it over.

    Raises Refused when it cannot be written.
    """
    base = next((name for name in compose.FILES if os.path.isfile(os.path.join(project_root, name))), None)
    if not pairs or base is None:
        return []
    path = os.path.join(project_root, compose.overlay_name(service))
    _write(path, compose.overlay(service, pairs))
    override = compose.override_of(base)
    has_override = os.path.isfile(os.path.join(project_root, override))
    files = [base, *([override] if has_override else []), compose.overlay_name(service)]
    return [word for name in files for word in ("-f", name)]


def _write(path: str, text: str) -> None:
    folder = os.path.dirname(path)
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(folder, exist_ok=True)
        ignore = os.path.join(folder, ".gitignore")
        if not os.path.exists(ignore):
            with open(ignore, "w", encoding="utf-8") as file:
                file.write("*\n")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as err:
        fix = "make the project's folder writable; containers learn the hosts' addresses from that file"
        raise Refused("unwritable", f"cannot write {path}", err.strerror or str(err), fix) from None

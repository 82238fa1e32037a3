"""Who is asked what: from the config's blocks and the command line to a question for each box. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from flodl_probe.checks import config_keys
from flodl_probe.finding import Finding, error
from flodl_probe.question import Forward, Question
from flodl_wire import address, devices, hosts
from flodl_wire.config import Cluster, Ssh, Worker, parse_cluster
from flodl_wire.faults import Refused

DASHBOARD = 3000
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# What of a worker's env: changes what is found there; the rest (it may hold keys of services) stays here.
_TELLING = ("LD_", "NCCL_", "GLOO_", "ROCM_", "HIP_", "PYTHONPATH", "PYTHONHOME", "CUDA_HOME", "CUDA_PATH")
SHARE = 0.8  # of a host's time is for its own answer, the rest for the way there and back


class Flags(msgspec.Struct):
    """The command line's own say: it wins over the config, on every host."""

    devices: str | None = None
    data_path: str | None = None
    libtorch_path: str | None = None
    docker: str | None = None
    controller: str | None = None
    skip_mount: bool = False
    deep: bool = False
    timeout: float = 30.0


class Target(msgspec.Struct):
    """One box and the way to it; `local`: this very box."""

    question: Question
    local: bool
    ssh: Ssh | None = None
    tunnel: bool = False


class Plan(msgspec.Struct):
    """`listen`: where a listener of ours is wanted while the hosts are asked (host None: everywhere)."""

    targets: list[Target]
    findings: list[Finding] = []
    controller: str | None = None
    port: int = address.DEFAULT_PORT


def fleet(cluster_block: Any, flags: Flags, here: str, manifest_hash: str | None) -> Plan:
    """Every host of the cluster block, and the controller's box when it is this one. Keys of an older format and a
    block that cannot be read become findings: what can still be asked is asked.
    """
    findings = config_keys.legacy(cluster_block)
    try:
        cluster = parse_cluster(config_keys.without_legacy(cluster_block))
    except Refused as fault:
        return Plan([], [*findings, error("config", fault.what, fault.why, fault.fix)])
    everyone = [worker.host for worker in cluster.workers]
    several = len(everyone) > 1 or any(not is_local(host, here) for host in everyone)
    data_wanted = cluster.controller.data_path is not None or any(worker.data_path for worker in cluster.workers)
    targets = [
        Target(
            _worker(cluster, worker, flags, several, data_wanted, manifest_hash, is_local(worker.host, here)),
            is_local(worker.host, here),
            worker.ssh,
            worker.tunnel,
        )
        for worker in cluster.workers
    ]
    return Plan(targets, findings, cluster.controller.host, cluster.controller.port)


def _worker(
    cluster: Cluster,
    worker: Worker,
    flags: Flags,
    several: bool,
    data_wanted: bool,
    manifest_hash: str | None,
    local: bool,
) -> Question:
    env = {**cluster.env, **worker.env}
    return Question(
        host=worker.host,
        role="worker",
        local=local,
        devices=flags.devices or devices.render(devices.parse(worker.local_devices, "local_devices")),
        several=several,
        path=worker.path,
        arch=worker.arch,
        libtorch_path=flags.libtorch_path,
        docker=flags.docker or worker.docker,
        data_path=flags.data_path or worker.data_path,
        data_wanted=data_wanted,
        skip_mount=flags.skip_mount,
        nccl_socket_ifname=worker.nccl_socket_ifname,
        env={name: value for name, value in env.items() if name.startswith(_TELLING)},
        controller="127.0.0.1" if local else cluster.controller.host,  # as the run's own agents dial
        port=cluster.controller.port,
        manifest_hash=manifest_hash or None,
        deep=flags.deep,
        patience=flags.timeout * SHARE,
    )


def controller_row(plan: Plan, here: str, path: str | None, port_is_ours: bool) -> Question:
    """The question to this box as the controller. `port_is_ours`: our own listener has the port."""
    return Question(
        host=here,
        role="controller",
        several=len(plan.targets) > 1,
        path=path,
        port=plan.port,
        remote_hosts=any(not target.local for target in plan.targets),
        check_ports=[DASHBOARD] if port_is_ours else [plan.port, DASHBOARD],
        data_wanted=False,
    )


def alone(flags: Flags, join: Any) -> Plan:
    """This box by itself: as the walk-in that its `join:` block makes it, else as nothing in particular."""
    asked = Question(check_ports=[DASHBOARD])
    findings: list[Finding] = []
    if isinstance(join, dict):
        try:
            asked = walk_in(join)
        except Refused as fault:
            findings.append(error("config", fault.what, fault.why, fault.fix))
    elif join is not None:
        findings.append(error("config", "cannot use join", "it must be a block of keys", "docs/manifest.md has them"))
    asked = msgspec.structs.replace(
        asked,
        devices=flags.devices or asked.devices,
        data_path=flags.data_path or asked.data_path,
        libtorch_path=flags.libtorch_path,
        docker=flags.docker,
        skip_mount=flags.skip_mount,
        deep=flags.deep,
        patience=flags.timeout,
    )
    if flags.controller is not None:
        place = address.parse(flags.controller, "--controller")
        asked = msgspec.structs.replace(asked, controller=place.host, port=place.port, several=True)
    return Plan([Target(asked, local=True)], findings)


def walk_in(join: dict[str, Any]) -> Question:
    """The question that a `join:` block is. Raises Refused for what the probe itself cannot read; the rest of the block
    is `fdl join`'s affair.
    """
    forward = _forward(join.get("ssh"))
    text = join.get("controller")
    place = address.parse(str(text), "join.controller") if text is not None else None
    source = join.get("source")
    origin = source.get("from") if isinstance(source, dict) else source
    origin = origin if isinstance(origin, str) else ""
    tools = ["flodl-agent"]
    if forward is not None or origin.startswith(("rsync://", "git+ssh://")):
        tools.append("ssh")
    if origin.startswith("rsync://"):
        tools.append("rsync")
    if origin.startswith("git+"):
        tools.append("git")
    if join.get("data_source"):
        tools.append("sshfs")
    if place is None and forward is not None:
        place = address.Address("127.0.0.1", address.DEFAULT_PORT)  # as seen from the ssh host
    return Question(
        host=str(join["host"]) if isinstance(join.get("host"), str) else "",
        role="walk-in",
        devices=_devices(join.get("devices")),
        several=True,
        # a data_source is mounted there by the join itself
        data_path=None if join.get("data_source") else _text(join.get("data_path")),
        data_wanted=False,
        controller=place.host if place else None,
        port=place.port if place else address.DEFAULT_PORT,
        forward=forward,
        tools=tools,
    )


def _forward(value: Any) -> Forward | None:
    if value is None:
        return None
    block = value if isinstance(value, dict) else {"target": value}
    try:
        ssh = msgspec.convert(block, Ssh)
    except msgspec.ValidationError as err:
        raise Refused("bad-config", "cannot use join.ssh", str(err), "write [user@]host[:port], or a block") from None
    user, at, rest = (ssh.target or "").rpartition("@")
    port = ssh.port
    if not isinstance(value, dict) or ":" in rest:
        place = address.parse(rest, "join.ssh", default_port=port or 22)
        rest, port = place.host, place.port if ":" in rest else port
    flaw = hosts.flaw(rest) or (hosts.flaw(user) if at else "")
    if flaw:
        raise Refused("bad-config", "cannot use join.ssh", flaw, "write [user@]host[:port]")
    return Forward(rest, port, user or ssh.user, ssh.identity_file, ssh.options)


def _devices(value: Any) -> str:
    if value is None:
        return "all"
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        return ",".join(map(str, value))
    return str(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def is_local(host: str, here: str) -> bool:
    return host == here or host in LOOPBACK

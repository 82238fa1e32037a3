"""All facts of this box for one question."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from pathlib import Path

from flodl_probe import inventory, login_shell
from flodl_probe.facts import Driver, Facts, Gpu
from flodl_probe.question import Question
from flodl_probe.reading import (
    box,
    bus,
    cuda_driver,
    data_folder,
    deep_run,
    docker_engine,
    gpu_health,
    interfaces,
    libtorch_variant,
    nccl_library,
    road,
    tools,
    torch_build,
)
from flodl_wire import environ

MANIFESTS = ("fdl.yaml", "fdl.yml", "fdl.json")  # in the order fdl looks for them
_ROAD_SHARE = 0.5  # of the patience: the rest is for whoever has to report that nothing answered


def gather(asked: Question) -> Facts:
    """Read-only. Never raises for anything a box can do."""
    began = time.monotonic()
    project = Path(asked.path).expanduser() if asked.path else None
    project = project if project is not None and project.is_dir() else None
    home = Path.home()
    facts = Facts(asked, asked.host or own_name(), box.read(), project=str(project) if project else None)
    facts.interfaces = interfaces.read()
    if asked.role != "controller" and asked.docker is None:
        _devices(facts)
        facts.libtorch = libtorch_variant.find(asked.libtorch_path, asked.arch, project, home)
        site = Path(facts.libtorch.path, "site") if facts.libtorch and facts.libtorch.valid_dir else None
        facts.torch = (torch_build.read(site, "libtorch") if site else None) or torch_build.find(project)
        facts.nccl = nccl_library.read({**os.environ, **asked.env}, facts.torch, facts.libtorch)
    elif asked.role != "controller":
        _devices(facts)
    if asked.docker is not None:
        facts.docker = docker_engine.read()
    if asked.role != "controller" and (asked.data_path is not None or asked.data_wanted or asked.skip_mount):
        facts.data = data_folder.read(asked.data_path, asked.skip_mount)
    names = list(asked.tools)
    if asked.role == "worker":
        names += ["flodl-agent", "flodl-planes"]
    if asked.remote_hosts:
        names.append("ssh")
    facts.tools = tools.find(names, project, home, beside_us=asked.local)
    facts.packages = tools.packages()
    if project is not None:
        facts.manifest_hash = manifest_hash(project)
    facts.own_addresses = interfaces.own_addresses()
    facts.ports = [interfaces.port_use(port) for port in asked.check_ports]
    for use in facts.ports:
        use.flodl = use.holder is not None and use.port == asked.port and road.is_window(use.port)
    left = max(1.0, asked.patience - (time.monotonic() - began))
    facts.road = road.walk(asked, facts.interfaces, left * _ROAD_SHARE)
    if asked.deep and asked.role != "controller" and asked.docker is None:
        left = max(1.0, asked.patience - (time.monotonic() - began) - 1.0)
        facts.deep = deep_run.read(project, asked.env, facts.libtorch, left)
    return facts


def own_name() -> str:
    return os.environ.get(environ.HOST_NAME) or socket.gethostname() or "localhost"


def _devices(facts: Facts) -> None:
    found = inventory.take()
    facts.gpus = [Gpu(**device.as_dict()) for device in found.devices]  # type: ignore[arg-type]
    facts.gpu_notes = found.notes
    facts.cards = bus.read()
    if any(gpu.vendor == "nvidia" for gpu in facts.gpus):
        cards, facts.processes, facts.driver = gpu_health.read()
        gpu_health.apply(facts.gpus, cards)
    count, cuda, failure = cuda_driver.read()
    facts.driver = Driver(facts.driver.version, cuda or facts.driver.cuda, count, failure)
    if not facts.gpus and facts.cards and login_shell.by_ssh():
        facts.box.shell_reads = login_shell.asked("rocminfo") or ""


def manifest_hash(project: Path) -> str:
    """sha256 of the project's manifest as the agent takes it; "" when there is none."""
    for name in MANIFESTS:
        try:
            return hashlib.sha256((project / name).read_bytes()).hexdigest()
        except OSError:
            continue
    return ""

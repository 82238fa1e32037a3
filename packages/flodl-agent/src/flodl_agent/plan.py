"""What this host will run for a formed world: the relay, then one process per rank, each with its whole environment.
Pure.

The environment contract of a rank stands in docs/env.md. Three layers, later ones win:

1. the agent's own environment, without roles and visibility masks, with our defaults (threads, data path, PATH,
   interfaces);
2. the user's ``env:`` (cluster's, then worker's), byte for byte;
3. who the rank is and which device it sees: nobody may overrule that.

Texts that were no UTF-8 in the agent's environment travel as surrogates and leave as the same bytes (keeper.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from flodl_wire import blob, environ, libtorch
from flodl_wire.faults import Broken, Refused
from flodl_wire.join_messages import DeviceOffer, WorldFormed
from flodl_wire.libtorch import Variant
from flodl_wire.specs import AgentSpec, Command, Envelope, EnvelopeController, RelaySpec


@dataclass(frozen=True)
class Place:
    """What only this box knows."""

    spec: AgentSpec
    offers: list[DeviceOffer]
    environment: Mapping[str, str]
    bin_dir: str  # of this agent's own executables
    cores: int
    address: str = ""  # of the controller, as this host's own join reached it
    port: int = 0
    run_dir: str = ""
    planes: str = "flodl-planes"  # path of the executable
    interface: str = ""  # that leads to the controller
    store_port: int = 0  # of our listener on loopback (modes torch and nccl_*)
    own_command: list[str] = field(default_factory=list)  # a walk-in's
    site: str = ""  # folder of what was built for this host
    variant: Variant | None = None  # the libtorch that ranks use; None: their environment's own


@dataclass(frozen=True)
class Child:
    """One process for the keeper. `rank` is None for the relay."""

    name: str  # "relay", "rank 3"
    rank: int | None
    argv: list[str]
    env: dict[str, str]
    cwd: str


def localize(formed: WorldFormed, place: Place) -> WorldFormed:
    """`formed` with what only this host knows: the controller's address its join used, sockets, its own data path and
    memory share.
    """
    worker = formed.envelope.worker
    relay_socket = f"{place.run_dir}/relay.sock" if formed.relay else ""
    envelope = msgspec.structs.replace(
        formed.envelope,
        controller=EnvelopeController(place.address, place.port),
        worker=msgspec.structs.replace(
            worker,
            data_path=place.spec.data_path or worker.data_path,
            gpu_ram_share=worker.gpu_ram_share if place.spec.gpu_ram_share is None else place.spec.gpu_ram_share,
        ),
        relay_socket=relay_socket,
        store_port=place.store_port,
    )
    relay = formed.relay and msgspec.structs.replace(
        formed.relay, controller_host=place.address, controller_port=place.port, relay_socket=relay_socket
    )
    return msgspec.structs.replace(formed, envelope=envelope, relay=relay)


def plan_children(formed: WorldFormed, place: Place) -> list[Child]:
    """The processes for `formed` (localized), in the order they start. Raises Broken or Refused when it does not fit
    this host.
    """
    ranks, offers = formed.envelope.worker.ranks, place.offers
    if len(ranks) != len(offers):
        raise Broken(
            "rank-count",
            f"cannot start the ranks of {place.spec.host}",
            f"the controller gives it ranks {ranks}, and it offered {len(offers)} devices",
        )
    command = _command(formed, place)
    cwd = folder(place.spec, formed.envelope, command)
    children = [_relay(formed.relay, place, cwd)] if formed.relay else []
    for local_rank, rank in enumerate(ranks):
        env = rank_environment(formed.envelope, command, place, local_rank)
        children.append(Child(f"rank {rank}", rank, command.argv, env, cwd))
    return children


def _command(formed: WorldFormed, place: Place) -> Command:
    """What every rank runs. Only an agent that the controller itself started takes a command line from it: at an open
    door that would be a stranger's shell. A walk-in takes the arguments alone.
    """
    if formed.command and place.spec.roster_host:
        return formed.command
    if not place.own_command:
        what = f"cannot start the ranks of {place.spec.host}"
        why = "it came by itself, and so runs a program of its own; none was named"
        raise Refused("no-command", what, why, "name it: fdl join … --bin train.py")
    return Command([*place.own_command, *(formed.args or place.spec.args or [])])


def folder(spec: AgentSpec, envelope: Envelope, command: Command) -> str:
    """Where the ranks run: the project on this host, and the command's folder in it."""
    project = Path(spec.path or envelope.worker.path or ".").expanduser()
    return str((project / command.cwd).absolute())


def _relay(spec: RelaySpec, place: Place, cwd: str) -> Child:
    env = {**_inherited(place), "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
    env[environ.RELAY_JSON] = blob.encode(spec)
    return Child("relay", None, [place.planes, "relay"], env, cwd)


def rank_environment(envelope: Envelope, command: Command, place: Place, local_rank: int) -> dict[str, str]:
    """The whole environment of the rank at `local_rank`."""
    worker, offers = envelope.worker, place.offers
    torch = envelope.mode == "torch"
    env = _inherited(place)
    env.setdefault("OMP_NUM_THREADS", str(max(1, place.cores // len(offers))))
    env["PYTHONUNBUFFERED"] = "1"
    env["PATH"] = _first_on_path(place.bin_dir, env.get("PATH", ""))
    if worker.data_path:
        env[environ.DATA_PATH] = worker.data_path
    if torch:
        env.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")  # torchrun's default, a user's to change
    if torch or envelope.mode.startswith("nccl"):
        env |= _interfaces(worker.nccl_socket_ifname, place.interface, alone=envelope.num_workers == 1)
    env |= command.env
    env |= libtorch.environment(place.variant, env)
    if place.site:
        env["PYTHONPATH"] = _first_on_path(place.site, env.get("PYTHONPATH", ""))
    env |= _mask(offers if torch else [offers[local_rank]])
    env[environ.CLUSTER_JSON] = blob.encode(envelope)
    env[environ.LOCAL_RANK] = str(local_rank)
    if torch:
        env |= torchrun_environment(envelope, local_rank, place.store_port)
    return env


def _first_on_path(folder: str, path: str) -> str:
    return ":".join([folder, *(entry for entry in path.split(":") if entry != folder)]) if path else folder


def _inherited(place: Place) -> dict[str, str]:
    """The agent's own environment without roles (everything internal is one process's own) and without masks."""
    return {
        name: value
        for name, value in place.environment.items()
        if not name.startswith(environ.INTERNAL_PREFIX) and name not in environ.VISIBILITY_MASKS
    }


def _mask(offers: list[DeviceOffer]) -> dict[str, str]:
    """The devices of `offers` alone are visible, numbered from 0 in that order. On a CPU rank none is."""
    visible = ",".join(str(offer.index) for offer in offers if offer.kind != "cpu")
    mask = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": visible}
    if any(offer.kind == "rocm" for offer in offers):
        mask["HIP_VISIBLE_DEVICES"] = visible  # what torch for ROCm reads; equal to the other, or Ray and HIP complain
    return mask


def _interfaces(configured: str, found: str, *, alone: bool) -> dict[str, str]:
    """Which interface NCCL and gloo talk over. NCCL matches by prefix (eth1 also takes eth10) unless told "=", gloo
    knows no "=".
    """
    name = configured or found
    if not name or (name == "lo" and not alone):  # the way to a controller on this box says nothing about other hosts
        return {}
    plain = name.removeprefix("=")
    exact = name if name[0] in "=^" or "," in name else f"={name}"
    return {"NCCL_SOCKET_IFNAME": exact, "GLOO_SOCKET_IFNAME": plain}


def check_interface(name: str, existing: list[str], host: str) -> None:
    """Raises Refused when `name` is a plain interface name that this host does not have: NCCL would hang, and say
    nothing.
    """
    plain = name.removeprefix("=")
    if plain and not plain.startswith("^") and "," not in plain and plain not in existing:
        raise Refused(
            "no-interface",
            f"cannot use nccl_socket_ifname {name!r} on {host}",
            f"it has {', '.join(existing)}",
            "name one of these in fdl.yml; `ip -br addr` shows their addresses",
        )


def torchrun_environment(envelope: Envelope, local_rank: int, port: int) -> dict[str, str]:
    """Everything torchrun sets (torch 2.13, torch/distributed/elastic/agent/server/local_elastic_agent.py). The
    rendezvous is ours: `port` is the agent's listener, which carries each connection to the one port of the controller.
    """
    worker = envelope.worker
    rank, world = str(worker.ranks[local_rank]), str(envelope.world_size)
    return {
        "LOCAL_RANK": str(local_rank),
        "RANK": rank,
        "GROUP_RANK": str(worker.index),
        "ROLE_RANK": rank,
        "ROLE_NAME": "default",
        "LOCAL_WORLD_SIZE": str(len(worker.ranks)),
        "WORLD_SIZE": world,
        "GROUP_WORLD_SIZE": str(envelope.num_workers),
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": envelope.run,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }

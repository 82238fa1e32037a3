"""The documents one process hands to the next when it starts it: who you are, where to dial, what to run.

Sensitive ones (they hold the salt) travel on stdin or in an environment variable, never on a command line.
"""

from __future__ import annotations

import msgspec

from flodl_wire.config import Cluster, Ssh
from flodl_wire.devices import CpuDevices, Devices, GpuDevices
from flodl_wire.plane_messages import TensorSpec


class Site(msgspec.Struct, omit_defaults=True):
    """A folder of packages that was built for a host before the run, to go on its ranks' PYTHONPATH."""

    path: str  # relative to the host's project folder
    python: str = ""  # "3.11": the Python it was built for; "" when not known
    required: bool = False  # the project asked for the build: a host that does not see the folder is refused


class AgentSpec(msgspec.Struct, omit_defaults=True):
    """What makes a process an agent; the first three fields are the minimum."""

    host: str
    controller_host: str
    controller_port: int
    salt_hex: str | None = None  # 32 hex: the run's salt or token; None under open admission
    local_devices: Devices | None = None  # None = every GPU of the box
    libtorch: str = ""  # the variant that its ranks use: name or folder; "" for the active one
    dataset_sig_hex: str | None = None
    model_sig_hex: str | None = None
    run_id: str | None = None  # a published run's identity
    data_path: str | None = None
    gpu_ram_share: float | None = None
    path: str | None = None  # project folder on this host; ranks run there
    manifest_hash: str | None = None  # sha256 of the controller's fdl.yml, to be the same here
    roster_host: bool = False  # started by the fan-out (takes command and env from the controller)
    args: list[str] | None = None  # a walk-in's own arguments; None: those the controller states
    model_schema: list[TensorSpec] = []  # what model_sig_hex was made of
    road: str = ""  # of a walk-in: direct | ssh
    finished: str = ""  # instance of the window whose run this host has finished: not to be joined again
    site: Site | None = None  # what was built for this host


class FanoutHost(msgspec.Struct):
    """One host for the fan-out: the agent spec to deliver and the road to it."""

    agent: AgentSpec
    local: bool  # this very box: no ssh
    ssh: Ssh | None = None
    env: dict[str, str] = {}  # for the agent process itself (time-out scale, verbosity, host name)
    tunnel: int | None = None  # this box's port, to be reached from there through the ssh session alone
    docker: str = ""  # service of the host's compose file in which the agent runs, and with it all that it starts
    extra_hosts: list[str] = []  # "name:ip" for that container


class FanoutSpec(msgspec.Struct):
    """stdin of ``flodl-agent fanout``, one line of JSON; stdin then stays open, and its end means: end everything."""

    hosts: list[FanoutHost]
    host_user: str | None = None


class FanoutEvent(msgspec.Struct, omit_defaults=True):
    """One line of the fan-out's stdout per event. `kind`: started | exited | line."""

    kind: str
    host: str
    code: int | None = None  # exited: the agent's or ssh's exit code (negative: signal)
    text: str = ""  # line: something the agent or ssh printed; exited: its last words
    command: str = ""  # started: the command, for the error message


class RankPlace(msgspec.Struct):
    """Where one rank lives."""

    rank: int
    host: str
    local_rank: int
    device: str  # "cpu", "cuda:<physical index>"


class EnvelopeController(msgspec.Struct):
    host: str
    port: int


class EnvelopeWorker(msgspec.Struct, omit_defaults=True):
    """The host's own block of the envelope."""

    host: str
    ranks: list[int]
    local_devices: Devices
    nccl_socket_ifname: str = ""
    path: str = ""
    arch: str | None = None
    data_path: str | None = None
    gpu_ram_share: float | None = None
    index: int = 0  # the host's place in the world, from 0 (torchrun's GROUP_RANK)


class Envelope(msgspec.Struct, omit_defaults=True):
    """What a rank knows of the world: FLODL_INTERNAL_CLUSTER_JSON (with FLODL_INTERNAL_LOCAL_RANK)."""

    controller: EnvelopeController
    world_size: int
    num_workers: int
    worker: EnvelopeWorker
    mode: str
    run: str  # run id
    salt: str = ""  # hex; empty on ranks that never open a sealed channel themselves
    relay_socket: str = ""  # Unix socket of this host's relay; stamped in by the agent
    store_port: int = 0  # of the agent's listener on loopback, behind which the run's store stands; 0: none


class RelaySpec(msgspec.Struct, omit_defaults=True):
    """FLODL_INTERNAL_RELAY_JSON."""

    host: str
    controller_host: str
    controller_port: int
    ranks: list[int]
    world_size: int
    salt_hex: str
    run: str
    mode: str = "cpu_cadence"
    keyed: bool = True
    hub_socket: str = ""  # Unix socket of the hub when it runs on this very box; empty: dial the controller
    relay_socket: str = ""  # Unix socket to listen on for local ranks; stamped in by the agent


class HubSpec(msgspec.Struct, omit_defaults=True):
    """stdin of ``flodl-planes hub``, one line of JSON. The pair with the launcher is an inherited descriptor (``--pair
    FD``).
    """

    run: str
    run_dir: str  # runs/<id>: checkpoint and metrics go here
    socket_dir: str  # 0700 folder for the hub's Unix socket
    mode: str
    salt_hex: str
    keyed: bool = True


class Command(msgspec.Struct, omit_defaults=True):
    """What every rank runs. `argv[0]` is resolved on the rank's host; argv and env arrive byte for byte."""

    argv: list[str]
    env: dict[str, str] = {}
    cwd: str = ""  # relative to the host's project folder


class LaunchConfig(msgspec.Struct, omit_defaults=True):
    """What fdl (or ``--config FILE``) hands the tools: FLODL_INTERNAL_CONFIG_JSON. A tool reads the blocks it knows."""

    cluster: Cluster | None = None
    mode: str | None = None
    manifest: str | None = None  # absolute path of the project's fdl.yml
    env: dict[str, str] = {}  # `env:` of the command: to every rank, over cluster.env and under the worker's own
    cwd: str = ""  # the command's folder, relative to the project folder on every host (`path:` commands)
    sites: dict[str, Site] = {}  # by host
    served: str = ""  # `publish.to`: where this box publishes to; "" for ~/.flodl/run
    any_port: bool = False  # nobody chose the port: when it is taken, any free one will do


__all__ = [
    "AgentSpec",
    "Command",
    "CpuDevices",
    "Devices",
    "Envelope",
    "EnvelopeController",
    "EnvelopeWorker",
    "FanoutEvent",
    "FanoutHost",
    "FanoutSpec",
    "GpuDevices",
    "HubSpec",
    "LaunchConfig",
    "RankPlace",
    "RelaySpec",
    "Site",
]

"""What a run is (its charter), and the letters every host gets when the world forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from flodl_window import modes
from flodl_window.cohort import Cohort
from flodl_window.knobs import Knobs
from flodl_window.ledger import Entry, Ledger
from flodl_window.roster import RosterHost
from flodl_window.verdict import Incident, Surety
from flodl_wire.devices import CpuDevices, Devices, GpuDevices
from flodl_wire.join_messages import DeviceOffer, WorldFormed
from flodl_wire.specs import Command, Envelope, EnvelopeController, EnvelopeWorker, RankPlace, RelaySpec, Site


@dataclass
class Charter:
    """Everything that is settled before the window opens. `salt_hex` never leaves it but sealed."""

    run: str
    mode: str
    argv: list[str]
    roster: list[RosterHost]
    knobs: Knobs
    salt_hex: str
    instance: str  # this window's own nonce
    controller_host: str
    controller_port: int
    cohort: Cohort = field(default_factory=Cohort)
    env: dict[str, str] = field(default_factory=dict)  # cluster.env, overlaid by the command's own
    cwd: str = ""  # the command's folder, relative to the project folder of each host
    gpu_ram_share: float | None = None  # the cluster's default
    fanout: bool = True  # we start the roster's agents ourselves
    hub_socket: str = ""  # the hub's Unix socket, for relays of this very box
    sites: dict[str, Site] = field(default_factory=dict)  # what was built for a host before
    served: Path | None = None  # where this box publishes to


def lone_world(charter: Charter, ledger: Ledger, why: str, now: float) -> Incident | None:
    """What is wrong with the world that would form now; an "all" host may turn out to have one device."""
    if ledger.joined >= 2 or charter.mode == modes.TORCH:
        return None
    fix = "give it two devices, e.g. local_devices: cpu:2, or run the command without cluster: true"
    return Incident(now, Surety.CAUSE, "a world of one has nothing to average with", why=why, fix=fix)


def form_world(charter: Charter, ledger: Ledger) -> tuple[list[RankPlace], dict[str, WorldFormed]]:
    """The frozen world: where every rank lives, and the letter for each host."""
    ranks = ledger.ranks()
    entries = ledger.in_rank_order()
    places = [
        RankPlace(rank, entry.host, local, _device(entry.devices[local]))
        for entry in entries
        for local, rank in enumerate(ranks[entry.host])
    ]
    letters = {
        entry.host: _letter(charter, ledger, entry, ranks[entry.host], len(places), len(entries), index)
        for index, entry in enumerate(entries)
    }
    return places, letters


def _device(offer: DeviceOffer) -> str:
    """ "cpu", "cuda:3"; ROCm devices are cuda to torch."""
    return "cpu" if offer.kind == "cpu" else f"cuda:{offer.index}"


def _devices(offers: list[DeviceOffer]) -> Devices:
    if all(offer.kind == "cpu" for offer in offers):
        return CpuDevices(len(offers))
    return GpuDevices([offer.index for offer in offers])


def _letter(
    charter: Charter, ledger: Ledger, entry: Entry, ranks: list[int], size: int, hosts: int, index: int
) -> WorldFormed:
    named = ledger.named(entry.host)
    worker = EnvelopeWorker(entry.host, ranks, _devices(entry.devices), index=index)
    if named is not None:
        config = named.worker
        worker.nccl_socket_ifname = config.nccl_socket_ifname or ""
        worker.path = config.path
        worker.arch = config.arch
        worker.data_path = config.data_path
        worker.gpu_ram_share = config.gpu_ram_share if config.gpu_ram_share is not None else charter.gpu_ram_share
    envelope = Envelope(
        controller=EnvelopeController(charter.controller_host, charter.controller_port),
        world_size=size,
        num_workers=hosts,
        worker=worker,
        mode=charter.mode,
        run=charter.run,
    )
    relay = None
    if charter.mode != modes.TORCH:
        relay = RelaySpec(
            host=entry.host,
            controller_host=charter.controller_host,
            controller_port=charter.controller_port,
            ranks=ranks,
            world_size=size,
            salt_hex=charter.salt_hex,
            run=charter.run,
            mode=charter.mode,
            hub_socket=charter.hub_socket if named is not None and named.inside and charter.fanout else "",
        )
    args = charter.cohort.args or []
    if named is None or entry.hello.road:  # a walk-in runs its own bin; only the arguments are the run's
        return WorldFormed(envelope, relay, None, args)
    command = Command(charter.argv, {**charter.env, **named.worker.env}, charter.cwd)
    return WorldFormed(envelope, relay, command, args)

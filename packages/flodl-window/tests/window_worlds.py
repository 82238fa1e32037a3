"""Small worlds for the machines' tests: clusters, hellos, charters, and a run that is driven by hand."""

from __future__ import annotations

from typing import Any

from flodl_window import events as ev
from flodl_window import knobs
from flodl_window.cohort import Cohort
from flodl_window.formation import Charter
from flodl_window.limits import Limits
from flodl_window.roster import read_roster
from flodl_window.run import Run
from flodl_wire.config import Cluster, JoinWindow, parse_cluster
from flodl_wire.hub_messages import Finished, RankIn, Ready, RelayIn, TrainingBegan
from flodl_wire.join_messages import Bye, DeviceOffer, Hello, JoinUp, RankExited
from flodl_wire.result import RunResult

SALT = "00112233445566778899aabbccddeeff"


def cluster(*devices: object, host: str = "10.0.0.1", **join: object) -> Cluster:
    """Hosts node-a, node-b, … with these local_devices."""
    workers = [
        {"host": f"node-{chr(97 + at)}", "local_devices": spec, "path": "/p", "nccl_socket_ifname": "eth0"}
        for at, spec in enumerate(devices)
    ]
    data: dict[str, Any] = {"controller": {"host": host, "path": "/p"}, "workers": workers}
    if join:
        data["controller"]["join"] = join
    return parse_cluster(data)


def offers(count: int, kind: str = "cpu", first: int = 0) -> list[DeviceOffer]:
    return [DeviceOffer(kind, first + at, kind) for at in range(count)]


def hello(host: str, count: int = 1, kind: str = "cpu", **more: Any) -> Hello:
    return Hello(host, "agent-" + host, offers(count, kind), **more)


def charter(
    of: Cluster,
    *,
    mode: str = "cpu_cadence",
    fanout: bool = True,
    loopback: bool = False,
    here: str = "controller-box",
    **cohort: Any,
) -> Charter:
    return Charter(
        run="20260101-000000-abcd",
        mode=mode,
        argv=["python", "train.py", "--lr", "0.1"],
        roster=read_roster(of, here),
        knobs=knobs.resolve(of, mode, fanout=fanout, loopback=loopback),
        salt_hex=SALT,
        instance="nonce",
        controller_host=of.controller.host,
        controller_port=1337,
        cohort=Cohort(mode=mode, **cohort),
        env=dict(of.env),
        fanout=fanout and bool(of.workers),
    )


def join(of: Cluster) -> JoinWindow:
    return of.controller.join or JoinWindow()


class Driven:
    """A run, a clock, and everything it has ordered so far."""

    def __init__(self, of: Cluster, *, ready: bool = True, limits: Limits | None = None, **how: Any) -> None:
        self.run = Run(charter(of, **how), limits or Limits(), 0.0)
        self.now = 0.0
        self.effects: list[ev.Effect] = []
        self.links: dict[str, int] = {}
        if ready:
            self.hub(Ready("/run/hub.sock"))

    def do(self, event: ev.Event) -> list[ev.Effect]:
        out = self.run.handle(event, self.now)
        self.effects += out
        return out

    def at(self, now: float) -> list[ev.Effect]:
        """Let time pass in quarter seconds up to `now`; hosts stay audible."""
        out: list[ev.Effect] = []
        while self.now < now:
            self.now = min(now, self.now + 0.25)
            for link in self.links.values():
                self.run.hear(link, self.now)
            out += self.do(ev.Ticked())
        return out

    def hello(self, message: Hello, address: str = "10.0.0.9") -> list[ev.Effect]:
        link = 1 + max(self.links.values(), default=0)
        self.links[message.host] = link
        return self.do(ev.HelloReceived(link, message, address))

    def says(self, host: str, message: JoinUp) -> list[ev.Effect]:
        return self.do(ev.LinkMessage(self.links[host], message))

    def gone(self, host: str) -> list[ev.Effect]:
        return self.do(ev.LinkClosed(self.links.pop(host)))

    def hub(self, message: Any) -> list[ev.Effect]:
        return self.do(ev.HubReported(message))

    def train(self) -> None:
        """Every relay and rank comes in and training begins."""
        assert self.run.world is not None
        for host in self.run.world.hosts:
            self.hub(RelayIn(host))
        for rank in self.run.world.ranks:
            self.hub(RankIn(rank))
        self.hub(TrainingBegan("training: 2 ranks"))

    def sent(self, kind: type) -> list[Any]:
        return [
            effect.message
            for effect in self.effects
            if isinstance(effect, ev.Send) and isinstance(effect.message, kind)
        ]

    def told(self, kind: type) -> list[Any]:
        return [
            effect.message
            for effect in self.effects
            if isinstance(effect, ev.TellHub) and isinstance(effect.message, kind)
        ]

    @property
    def said(self) -> list[str]:
        return [effect.text for effect in self.effects if isinstance(effect, ev.Say)]

    @property
    def concluded(self) -> int | None:
        codes = [effect.code for effect in self.effects if isinstance(effect, ev.Conclude)]
        assert len(codes) < 2
        return codes[0] if codes else None


def formed(*devices: object, **how: Any) -> Driven:
    """A fan-out world of hosts with these cpu specs, formed."""
    of = cluster(*devices)
    driven = Driven(of, **how)
    for worker in of.workers:
        spec = str(worker.local_devices)
        driven.hello(hello(worker.host, int(spec.partition(":")[2])))
    assert driven.run.phase.value == "forming"
    return driven


def result() -> RunResult:
    return RunResult("20260101-000000-abcd", "cpu_cadence", 2, samples=100)


def trained(*devices: object, **how: Any) -> Driven:
    world = formed(*(devices or ("cpu:1", "cpu:1")), **how)
    world.train()
    assert world.run.phase.value == "training"
    return world


def finish(world: Driven) -> None:
    world.hub(Finished(result()))
    for host in list(world.links):
        assert world.run.world is not None
        for rank in world.run.world.hosts[host].ranks:
            world.says(host, RankExited(rank, 0))
        world.says(host, Bye())
        world.gone(host)
    world.at(world.now + 0.25)


def end_children(world: Driven) -> None:
    world.do(ev.HubEnded("exit 0"))
    world.do(ev.FanoutEnded("exit 0"))


def failed(world: Driven) -> str:
    """The run has failed; the first cause as people read it."""
    assert world.run.phase.value == "failed", world.run.phase
    assert world.run.cause is not None
    return world.run.cause.cause().what

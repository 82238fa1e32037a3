"""A world of ranks on paper that answers the coordinator as real ones would, one event at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from flodl_planes.coordinator.hub_events import (
    AppendMetrics,
    CheckpointFound,
    CheckpointWritten,
    CommitRound,
    FindCheckpoint,
    HubEvent,
    HubOrder,
    SendRank,
    StartRound,
    Tell,
    Tick,
    WriteCheckpoint,
)
from flodl_planes.coordinator.machine import Coordinator
from flodl_planes.coordinator.roads import Limits
from flodl_planes.coordinator.transport_events import FromRank, RankLost, RelayJoined, RelayLost, RoundDone
from flodl_wire.hub_messages import Form, HubFailed, RankGone
from flodl_wire.plane_messages import (
    Applied,
    Deposit,
    EvalDone,
    Finish,
    Leaving,
    Moved,
    Plan,
    RankHello,
    Round,
    Section,
    TensorSpec,
    Terms,
)
from flodl_wire.specs import RankPlace


@dataclass
class Paper:
    """Ranks live on `hosts` (name → ranks). Every event costs a millisecond; `said` holds all orders."""

    hosts: dict[str, list[int]]
    samples: int = 100
    batch: int = 10
    epochs: int = 1
    mode: str = "cpu_cadence"
    evaluates: bool = False
    metrics: dict[str, float] = field(default_factory=lambda: {"accuracy": 0.5})  # what an evaluation finds
    max_failure: int | float | None = None
    gamma: float = 1.0
    averaging: dict[str, Any] = field(default_factory=dict)  # wire and outer of the terms
    ms: Callable[[int], float] = lambda rank: 10.0
    late: Callable[[int], float] = lambda rank: 0.0
    elche: dict[str, Any] = field(default_factory=lambda: {"progressive": False})  # windows as they are first dealt
    now: float = 0.0
    said: list[HubOrder] = field(default_factory=list)
    plans: dict[int, Plan] = field(default_factory=dict)  # what each rank is about to do
    later: dict[int, list[Plan]] = field(default_factory=dict)  # and afterwards, where it knows already
    undone: set[int] = field(default_factory=set)  # ranks that can deposit their plan
    apart: set[int] = field(default_factory=set)  # ranks that are at it, with the average before still to come
    done: dict[int, Plan] = field(default_factory=dict)  # rank → the plan behind its standing deposit
    open: Round | None = None
    open_hosts: list[str] = field(default_factory=list)
    merged: dict[int, list[int]] = field(default_factory=dict)  # epoch → positions, from what the rounds really took
    dead: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    to_apply: set[int] = field(default_factory=set)
    rounds: list[Round] = field(default_factory=list)
    committed: tuple[int, int] | None = None
    half_told: list[HubEvent] = field(default_factory=list)  # the second words on deaths, still to come
    mute: set[int] = field(default_factory=set)  # say no goodbye
    disk: bool = True  # writes checkpoints at once
    changes: dict[str, Any] = field(default_factory=dict)  # of the terms
    found: CheckpointFound = field(default_factory=lambda: CheckpointFound(None))

    def __post_init__(self) -> None:
        self.coordinator = Coordinator("r1", self.mode, Limits(grace_s=2.0, stall_s=300.0))
        self.host_of = {rank: host for host, ranks in self.hosts.items() for rank in ranks}

    # --- the beginning

    def terms(self, **changed: Any) -> Terms:
        plain: dict[str, Any] = {
            "mode": self.mode,
            "dataset": self.samples,
            "batch_size": self.batch,
            "epochs": self.epochs,
            "seed": 0,
            "evaluates": self.evaluates,
            "max_failure": self.max_failure,
            "gamma": self.gamma,
            "elche": self.elche,
            **self.averaging,
        }
        return Terms(**{**plain, **self.changes, **changed})

    def hello(self, rank: int, **changed: Any) -> RankHello:
        tensors = [TensorSpec("weight", [2, 3], "F32", "param"), TensorSpec("steps", [], "I64", "buffer")]
        sections = [Section("F32", 6, 0, "mean"), Section("U8", 8, 64, "take")]
        plain: dict[str, Any] = {
            "terms": self.terms(),
            "tensors": tensors,
            "sections": sections,
            "model_sig": "ab" * 32,
        }
        return RankHello(rank, device="cpu", **{**plain, **changed})

    def form(self) -> list[HubOrder]:
        places = [
            RankPlace(rank, host, at, "cpu") for host, ranks in self.hosts.items() for at, rank in enumerate(ranks)
        ]
        return self.tell(Form(places))

    def load(self) -> Paper:
        """Form, relays, hellos: training has begun and round 0 is decided."""
        self.form()
        for host, ranks in self.hosts.items():
            self.tell(RelayJoined(host, ranks))
        for rank in self.host_of:
            self.tell(FromRank(rank, self.hello(rank)))
        if self.open:
            self.decide()
        return self

    # --- events

    def tell(self, event: HubEvent) -> list[HubOrder]:
        self.now += 0.001
        orders = self.coordinator.handle(event, self.now)
        self.said += orders
        for order in orders:
            self._carry_out(order)
        return orders

    def tick(self, seconds: float) -> list[HubOrder]:
        self.now += seconds
        return self.tell(Tick())

    def deposit(self, rank: int) -> list[HubOrder]:
        """The rank does its plan, evaluation first."""
        plan = self.plans[rank]
        if plan.evaluate is not None:
            self.tell(FromRank(rank, EvalDone(plan.evaluate, self.metrics, 3.0)))
        self.undone.discard(rank)
        spans = [*self.done[rank].spans, *plan.spans] if plan.further else plan.spans
        self.done[rank] = msgspec.structs.replace(plan, spans=spans)
        if self.later.get(rank):
            self.plans[rank] = self.later[rank].pop(0)
            self.apart.add(rank)
        batches = sum(-(-count // self.batch) for _, count in plan.spans)
        samples = sum(count for _, count in plan.spans)
        busy = batches * self.ms(rank)
        first = self.ms(rank) if batches else 0.0
        message = Deposit(plan.window, batches, samples, busy, 0.0, first, 1.0, 0.5, 2.0 * samples, samples)
        message.late_ms = self.late(rank)
        return self.tell(FromRank(rank, message))

    def decide(self) -> list[HubOrder]:
        """The open round's average is complete."""
        ordered = self.open
        assert ordered is not None
        if ordered.direct and ordered.weights:
            self.committed = None
            for rank in ordered.hands:
                assert self.committed is None
                self.tell(FromRank(rank, Moved(ordered.round, ordered.attempt)))
            assert self.committed == (ordered.round, ordered.attempt)
        self.open = None
        for rank in map(int, ordered.weights):
            plan = self.done.get(rank)
            if ordered.round and plan is not None:
                for start, count in plan.spans:
                    self.merged.setdefault(plan.epoch, []).extend(range(start, start + count))
        self.done = {}
        if ordered.confirm:
            self.to_apply = {rank for rank in self.living() if self.host_of[rank] in self.open_hosts}
        if ordered.apart:
            self.undone, self.apart = self.apart - self.dead, set()
        else:
            self.plans = {rank: plan for word, plan in ordered.plans.items() if (rank := int(word)) not in self.dead}
            self.undone = set(self.plans)
        return self.tell(RoundDone(ordered.round, ordered.attempt))

    def applied(self, rank: int) -> list[HubOrder]:
        self.to_apply.discard(rank)
        return self.tell(FromRank(rank, Applied(self.rounds[-1].round, 1.0)))

    def kill(
        self, rank: int, why: str = "killed by signal 9", launcher_first: bool = False, between: bool = False
    ) -> list[HubOrder]:
        """The relay sees a connection close, the launcher a process end: either may be heard of first; with
        something `between` the two, the other one comes by `hear`.
        """
        interrupted = None
        if self.open is not None and self.open.direct and self.open.weights:
            interrupted, self.open = self.open.round, None
        self._bury(rank)
        if self.mode.startswith("nccl"):
            self.done.pop(rank, None)
        words: list[HubEvent] = [RankLost(rank, False, interrupted), RankGone(rank, False, why)]
        first, second = reversed(words) if launcher_first else words
        self.half_told.append(second)
        return [*self.tell(first), *([] if between else self.hear())]

    def hear(self) -> list[HubOrder]:
        """The other word of the first death that was told of in one."""
        return self.tell(self.half_told.pop(0))

    def cut(self, host: str, launcher_first: bool = False) -> list[HubOrder]:
        """The host's link breaks: an open round of several hosts is dropped. The launcher may know before the hub."""
        ranks = [rank for rank in self.hosts[host] if rank not in self.dead]
        hit = self.open is not None and host in self.open_hosts
        interrupted = self.open.round if self.open is not None and hit else None
        if hit:
            self.open = None
        for rank in ranks:
            self._bury(rank)
            self.done.pop(rank, None)
        events: list[HubEvent] = [RankGone(rank, False, f"host {host} lost") for rank in ranks]
        events.insert(len(events) if launcher_first else 0, RelayLost(host, "connection reset", interrupted))
        return [order for event in events for order in self.tell(event)]

    def finish(self) -> Paper:
        """Everything that is left, in rank order."""
        while not self.over:
            self.step()
        return self

    def step(self) -> None:
        if self.open is not None:
            self.decide()
        elif self.undone:
            self.deposit(min(self.undone))
        elif self.to_apply:
            self.applied(min(self.to_apply))
        else:
            raise AssertionError(f"nothing can happen any more in phase {self.coordinator.phase}: {self.said[-4:]}")

    # --- what was said

    @property
    def over(self) -> bool:
        return self.coordinator.phase == "over"

    def living(self) -> list[int]:
        return [rank for rank in self.host_of if rank not in self.dead | self.left]

    def told(self, kind: type[Any]) -> list[Any]:
        return [order.message for order in self.said if isinstance(order, Tell) and isinstance(order.message, kind)]

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return [order.row for order in self.said if isinstance(order, AppendMetrics) and order.row["kind"] == kind]

    def failure(self) -> HubFailed:
        return self.told(HubFailed)[0]  # type: ignore[no-any-return]

    def _bury(self, rank: int) -> None:
        self.dead.add(rank)
        self.undone.discard(rank)
        self.apart.discard(rank)
        self.to_apply.discard(rank)

    def _carry_out(self, order: HubOrder) -> None:
        if isinstance(order, CommitRound):
            self.committed = (order.round, order.attempt)
        elif isinstance(order, StartRound):
            self.open, self.open_hosts = order.round, order.hosts
            self.rounds.append(order.round)
        elif isinstance(order, FindCheckpoint):
            self.tell(self.found)
        elif isinstance(order, WriteCheckpoint) and self.disk:
            self.tell(CheckpointWritten("checkpoint.safetensors"))
        elif isinstance(order, SendRank) and isinstance(order.message, Plan):
            if order.rank in self.undone | self.apart:
                self.later.setdefault(order.rank, []).append(order.message)
            else:
                self.plans[order.rank] = order.message
                self.undone.add(order.rank)
        elif isinstance(order, SendRank) and isinstance(order.message, Finish) and order.rank not in self.dead:
            if order.rank in self.mute:
                return
            self.left.add(order.rank)
            self.tell(FromRank(order.rank, Leaving()))


@pytest.fixture(scope="session")
def paper() -> type[Paper]:
    """The class, to be made with the world a test wants."""
    return Paper

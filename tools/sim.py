"""The real scheduler on ranks that exist only on paper: what would these boxes reach together?

Ranks have a stated speed, links a stated cost; the coordinator, the pool and El Che are the shipped ones, fed with
the messages real ranks would send, in the order and at the times they would come. No torch, no processes, a few
seconds for hours of training.

    python tools/sim.py                      the table that the tests hold to its thresholds
    python tools/sim.py --ms 2,5 --samples 1437 --batch 32 --epochs 200 --sync 2 --evaluate 6
    python tools/sim.py --ms 60,150 --samples 640000 --batch 16 --epochs 3 --link 50:25e6
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flodl_planes.coordinator.hub_events import (
    CheckpointWritten,
    HubEvent,
    SendRank,
    StartRound,
    Tell,
    Tick,
    WriteCheckpoint,
)
from flodl_planes.coordinator.machine import Coordinator
from flodl_planes.coordinator.transport_events import FromRank, RelayJoined, RoundDone
from flodl_wire.hub_messages import Finished, Form, HubFailed
from flodl_wire.plane_messages import Applied, Deposit, EvalDone, Finish, Leaving, Plan, RankHello, Round, Terms
from flodl_wire.result import RunResult
from flodl_wire.specs import RankPlace

SETTLED = 10  # windows after which a cadence has had the time to find its link


@dataclass(frozen=True)
class Link:
    """The slowest road between hub and hosts: `parameters` float32 travel up while the average travels down, chunk by
    chunk; `rate` in Mbit/s each way, `delay_ms` each way. `share`: bytes of the wire over those of float32.
    """

    rate: float
    parameters: float
    delay_ms: float = 0.0
    share: float = 1.0

    @property
    def sync_ms(self) -> float:
        """From the order's arrival on. One chunk more than one way: the last chunk of the sum goes up before the last
        of the average comes down. Sealing, heads and TCP take 3 %.
        """
        chunk = min(1 << 20, 4 * self.parameters)
        return 1.03 * 8 * self.share * (4 * self.parameters + chunk) / (self.rate * 1e3) + 2 * self.delay_ms


@dataclass(frozen=True)
class Case:
    """`ms`: milliseconds per batch of each rank. `sync_ms`: one average. `evaluate_ms`: an evaluation on a rank of 1
    ms per batch.
    """

    name: str
    ms: Sequence[float]
    samples: int = 1437
    batch: int = 32
    epochs: int = 200
    sync_ms: float = 2.0
    evaluate_ms: float = 0.0
    latency_ms: float = 0.5  # one message between a rank and the hub, unless the link's delay is longer
    jitter: float = 0.05  # standard deviation of a batch's time, as a share of it
    mood: float = 0.0  # and of a rank's speed, which it keeps for half a second
    mode: str = "cpu_cadence"
    elche: dict[str, Any] = field(default_factory=dict)
    link: Link | None = None  # instead of sync_ms: what an average costs over it
    change: tuple[float, Sequence[float]] | None = None  # from so many seconds on: these speeds


@dataclass
class Outcome:
    """`efficiency`: samples per second over what the ranks do alone, evaluations counted in, added up."""

    result: RunResult
    efficiency: float
    windows: list[dict[int, int]] = field(default_factory=list)  # batches per rank of every window, in order
    settled_sync: float | None = None  # the share of averages in the time behind the tenth window


class World:
    """Simulated ranks under the real coordinator."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        self.case = case
        self._latency_ms = max(case.latency_ms, case.link.delay_ms if case.link else 0.0)
        self.now = 0.0
        self.result: RunResult | None = None
        self.windows: list[dict[int, int]] = []
        self._random = random.Random(seed)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._coordinator = Coordinator("sim", case.mode)
        self._idle_since: dict[int, float] = {}
        self._ready: dict[int, list[Plan]] = {}  # that have come and not been begun
        self._busy: set[int] = set()
        self._owed: set[int] = set()  # cpu_async: ranks whose last deposit's average is still to come
        self._standing: dict[int, tuple[float, Callable[[], None]]] = {}  # and since when what of theirs waits for it
        self._stood: dict[int, float] = {}  # ms that they waited so, since their last deposit
        self._late: dict[int, float] = {}  # ms from their last deposit until its average was in
        self._moods: dict[int, tuple[float, float]] = {}  # rank → (until when, how much slower than stated)
        self._sync: dict[int, float] = {}
        self._costs: list[tuple[float, float]] = []  # (when it began, ms) of every average

    def run(self) -> Outcome:
        case = self.case
        ranks = range(len(case.ms))
        terms = Terms(case.mode, case.samples, case.batch, case.epochs, 0, case.evaluate_ms > 0, elche=case.elche)
        self._tell(Form([RankPlace(rank, "box", rank, "cpu") for rank in ranks]))
        self._tell(RelayJoined("box", list(ranks)))
        for rank in ranks:
            self._tell(FromRank(rank, RankHello(rank, terms, [], [], "sig", "cpu")))
        next_tick = 0.5
        while self._queue and self.result is None:
            self.now, _, act = heapq.heappop(self._queue)
            if self.now >= next_tick:
                next_tick = self.now + 0.5
                self._tell(Tick())
            act()
        if self.result is None:
            raise RuntimeError("the simulated run came to a stop before its end")
        alone = sum(map(self._alone, case.ms))
        return Outcome(self.result, self.result.samples_per_s / alone, self.windows, self._settled_sync())

    def _alone(self, ms: float) -> float:
        """Samples per second of one rank by itself; as in the run it evaluates behind every epoch but the last."""
        case = self.case
        samples = case.samples * case.epochs
        return samples / (samples / case.batch * ms + (case.epochs - 1) * case.evaluate_ms * ms) * 1e3

    def _settled_sync(self) -> float | None:
        if len(self._costs) <= SETTLED + 1:
            return None
        since = self._costs[SETTLED + 1][0]  # the first is the broadcast
        return sum(ms for began, ms in self._costs if began >= since) / 1e3 / (self.now - since)

    def _tell(self, event: HubEvent) -> None:
        for order in self._coordinator.handle(event, self.now):
            if isinstance(order, StartRound):
                self._start(order.round)
            elif isinstance(order, WriteCheckpoint):
                self._after(1.0, lambda: self._tell(CheckpointWritten("checkpoint")))
            elif isinstance(order, SendRank) and isinstance(order.message, Finish):
                self._after(self._latency_ms, lambda rank=order.rank: self._tell(FromRank(rank, Leaving())))  # type: ignore[misc]
            elif isinstance(order, SendRank) and isinstance(order.message, Plan):
                self._after(self._latency_ms, lambda to=order.rank, plan=order.message: self._lay_ready(to, plan))  # type: ignore[misc]
            elif isinstance(order, Tell) and isinstance(order.message, Finished):
                self.result = order.message.result
            elif isinstance(order, Tell) and isinstance(order.message, HubFailed):
                raise RuntimeError(f"{order.message.what}: {order.message.why}")

    def _after(self, ms: float, act: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (self.now + ms / 1e3, self._serial, act))

    def _start(self, round: Round) -> None:
        self.windows.append(
            {
                int(rank): sum(-(-count // self.case.batch) for _, count in plan.spans)
                for rank, plan in round.plans.items()
            }
        )
        cost = (self.case.link.sync_ms if self.case.link else self.case.sync_ms) * self._noise()
        self._costs.append((self.now, cost + 2 * self._latency_ms))  # the deposit's way and the order's counted in
        began = self.now + self._latency_ms / 1e3
        self._after(
            cost + 1e-6, lambda: self._tell(RoundDone(round.round, round.attempt))
        )  # what it sends comes behind
        for rank in range(len(self.case.ms)):
            self._sync[rank] = 0.0 if round.apart else cost
            self._after(self._latency_ms + cost, lambda rank=rank: self._applied(rank, round, began))  # type: ignore[misc]

    def _applied(self, rank: int, round: Round, began: float) -> None:
        if round.confirm:
            self._after(self._latency_ms, lambda: self._tell(FromRank(rank, Applied(round.round, self._sync[rank]))))
        if rank in self._owed:
            self._owed.discard(rank)
            self._late[rank] = (self.now - self._idle_since[rank]) * 1e3
        if rank in self._standing:
            since, act = self._standing.pop(rank)
            self._stood[rank] = self._stood.get(rank, 0.0) + (self.now - since) * 1e3
            if round.apart:  # what it waited before the round began it waited for others
                self._sync[rank] = (self.now - max(since, began)) * 1e3
            act()
        plan = round.plans.get(str(rank))
        if plan is not None:
            self._lay_ready(rank, plan)

    def _lay_ready(self, rank: int, plan: Plan) -> None:
        self._ready[rank] = sorted([*self._ready.get(rank, []), plan], key=lambda plan: plan.window)
        self._go_on(rank)

    def _go_on(self, rank: int) -> None:
        if rank not in self._busy and self._ready.get(rank):
            self._busy.add(rank)
            self._work(rank, self._ready[rank].pop(0))

    def _when_in(self, rank: int, act: Callable[[], None]) -> None:
        """`act` once the average of the rank's deposit before is in. Only in cpu_async has it begun without."""
        if rank in self._owed:
            self._standing[rank] = self.now, act
        else:
            act()

    def _hand_in(self, rank: int, deposit: Deposit, plan: Plan) -> None:
        if self.case.mode == "cpu_async":
            self._owed.add(rank)
            deposit.wait_ms += self._stood.pop(rank, 0.0)
            deposit.sync_ms = 0.0 if plan.further else self._sync[rank]
            deposit.late_ms = self._late.pop(rank, 0.0)
        self._busy.discard(rank)
        self._idle_since[rank] = self.now
        self._after(self._latency_ms, lambda: self._tell(FromRank(rank, deposit)))
        self._go_on(rank)

    def _work(self, rank: int, plan: Plan) -> None:
        if plan.further:
            self._owed.discard(rank)  # no average lies between the pieces of a window
        wait_ms = (self.now - self._idle_since.get(rank, self.now)) * 1e3
        speeds = self.case.change[1] if self.case.change and self.now > self.case.change[0] else self.case.ms
        began = 0.0
        if plan.evaluate is not None:
            epoch, began = plan.evaluate, self.case.evaluate_ms * speeds[rank]
            self._after(
                began + self._latency_ms,
                lambda: self._tell(FromRank(rank, EvalDone(epoch, {"accuracy": 0.9}, began))),
            )
        samples = sum(count for _, count in plan.spans)
        times: list[float] = []
        for _ in range(sum(-(-count // self.case.batch) for _, count in plan.spans)):
            times.append(speeds[rank] * self._noise() * self._mood(rank, self.now + (began + sum(times)) / 1e3))
        deposit = Deposit(
            plan.window,
            steps=len(times),
            samples=samples,
            compute_ms=sum(times),
            first_ms=times[0] if times else 0.0,
            wait_ms=wait_ms,
            sync_ms=0.0 if plan.further else self._sync[rank],
            loss_sum=float(samples),
            loss_samples=samples,
        )
        first = len(times)  # batches that it does before it waits for the average
        if rank in self._owed and plan.overshoot is not None:
            first = min(first, plan.overshoot)

        def rest() -> None:
            self._after(sum(times[first:]), lambda: self._when_in(rank, lambda: self._hand_in(rank, deposit, plan)))

        self._after(began + sum(times[:first]), lambda: self._when_in(rank, rest))

    def _mood(self, rank: int, at: float) -> float:
        until, factor = self._moods.get(rank, (0.0, 1.0))
        if at >= until:
            until, factor = at + 0.5, max(0.3, self._random.gauss(1.0, self.case.mood))
            self._moods[rank] = until, factor
        return factor

    def _noise(self) -> float:
        return max(0.2, self._random.gauss(1.0, self.case.jitter))


DIGITS = Case("digits", (2.0, 5.0), evaluate_ms=3.0, epochs=300)
CHARLM = Case("charlm", (60.0, 150.0), samples=8000, batch=16, epochs=2, sync_ms=15.0, evaluate_ms=20.0)

LARGE = Case("large", (60.0, 150.0), samples=16 * 40_000, batch=16, epochs=3)

CASES = [
    replace(DIGITS, name="digits 1:1", ms=(2.0, 2.0)),
    replace(DIGITS, name="digits 2.5:1"),
    replace(DIGITS, name="digits 4:1", ms=(2.0, 8.0)),
    replace(DIGITS, name="digits 2.5:1, no evaluation", evaluate_ms=0.0),
    replace(DIGITS, name="digits 4:1, no evaluation", ms=(2.0, 8.0), evaluate_ms=0.0),
    replace(DIGITS, name="digits 2.5:1, noisy box", jitter=0.4),
    replace(DIGITS, name="digits 1:2:4", ms=(2.0, 4.0, 8.0)),
    replace(CHARLM, name="charlm 2.5:1"),
    replace(CHARLM, name="charlm 4:1", ms=(60.0, 240.0)),
    replace(CHARLM, name="charlm 2.5:1, slow link", sync_ms=800.0, latency_ms=20.0),
    replace(CHARLM, name="charlm 2.5:1, long evaluation", evaluate_ms=60.0, epochs=4),
    replace(
        CHARLM, name="charlm 3 ranks, one changes", ms=(60.0, 60.0, 150.0), epochs=4, change=(60.0, (150.0, 60.0, 60.0))
    ),
    replace(DIGITS, name="2.5:1, short epochs, moods", ms=(14.0, 35.0), epochs=40, batch=16, mood=0.08),
    replace(DIGITS, name="1:2:4, short epochs, moods", ms=(14.0, 28.0, 56.0), epochs=40, batch=16, mood=0.08),
    replace(DIGITS, name="digits 2.5:1, cpu_sync", mode="cpu_sync", epochs=20),
    replace(LARGE, name="25 M, 50 Mbit/s", link=Link(50, 25e6)),
    replace(LARGE, name="25 M, 50 Mbit/s, int8", link=Link(50, 25e6, share=0.252)),
    replace(LARGE, name="25 M, 20 Mbit/s", link=Link(20, 25e6, 20.0)),
    replace(LARGE, name="25 M, 1 Gbit/s", link=Link(1000, 25e6)),
    replace(LARGE, name="4 M, 100 Mbit/s + 20 ms", ms=(8.0, 20.0), link=Link(100, 4e6, 20.0)),
    replace(LARGE, name="0.2 M, 1 Gbit/s + 150 ms", ms=(8.0, 20.0), link=Link(1000, 2e5, 150.0)),
]


def table(cases: Sequence[Case]) -> list[str]:
    heads = f"{'samples/s':>10} {'balance':>8} {'efficiency':>10} {'sync':>6} {'later':>6} {'rounds':>7}  a window"
    lines = [f"{'case':<30} {'wall s':>8} {heads}"]
    for case in cases:
        outcome = World(case).run()
        result = outcome.result
        typical = outcome.windows[len(outcome.windows) * 3 // 4] if outcome.windows else {}
        shares = " ".join(str(n) for n in typical.values())
        figures = f"{result.samples_per_s:>10,.0f} {result.balance or 0:>8.3f} {outcome.efficiency:>10.3f}"
        later = "" if outcome.settled_sync is None else f"{outcome.settled_sync:.3f}"
        costs = f"{result.sync_share or 0:>6.3f} {later:>6} {result.rounds:>7,}"
        lines.append(f"{case.name:<30} {result.wall_s:>8.1f} {figures} {costs}  {shares}")
    return lines


def link(text: str) -> Link:
    rate, parameters, *delay = map(float, text.split(":"))
    return Link(rate, parameters, *delay)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="sim.py", description="run the real scheduler on simulated ranks and print what it reaches"
    )
    made.add_argument("--ms", help="milliseconds per batch of each rank, e.g. 2,5 (without it: the standard table)")
    made.add_argument("--samples", type=int, default=DIGITS.samples)
    made.add_argument("--batch", type=int, default=DIGITS.batch)
    made.add_argument("--epochs", type=int, default=DIGITS.epochs)
    made.add_argument("--sync", type=float, default=DIGITS.sync_ms, metavar="MS", help="one average")
    made.add_argument(
        "--evaluate",
        type=float,
        default=0.0,
        metavar="BATCHES",
        help="an evaluation, in batches of the rank that does it",
    )
    made.add_argument("--mood", type=float, default=0.0, metavar="SHARE", help="how much speeds wander")
    made.add_argument("--elche", type=json.loads, default={}, metavar="JSON", help="the cadence's settings")
    made.add_argument("--mode", default="cpu_cadence")
    made.add_argument(
        "--link", metavar="MBIT:PARAMETERS[:MS]", type=link, help="a road instead of --sync, e.g. 50:25e6 or 100:4e6:20"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    cases = CASES
    if args.ms:
        speeds = tuple(float(word) for word in args.ms.split(","))
        sizes = (args.samples, args.batch, args.epochs, args.sync, args.evaluate)
        cases = [Case("yours", speeds, *sizes, mode=args.mode, link=args.link, mood=args.mood, elche=args.elche)]
    print("\n".join(table(cases)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

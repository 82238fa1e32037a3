"""Which worlds are compared, with whom, and on which examples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALONE = "one rank alone"
LONGER = "one rank alone, three times as long"
EXACT = "exact, two hosts"


@dataclass(frozen=True)
class Metric:
    """What an example's `evaluate` gives on held-out data, and which way is good."""

    name: str
    text: str
    higher_is_better: bool


@dataclass(frozen=True)
class Work:
    """An example of docs/examples: its arguments, and samples in an epoch. `contenders`: those it is for, by name; all
    if empty.
    """

    name: str
    example: str
    argv: tuple[str, ...]
    samples: int
    batch_size: int
    lr: float
    epochs: int
    seeds: int
    metrics: tuple[Metric, ...]
    text: str
    contenders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contender:
    """`hosts`: ranks on each, none for a run alone; the hub is beside the first. `trainer`: what the example's Trainer
    is given besides; `batch`, `lr` and `epochs` multiply the work's own. `against`: the contenders whose seeds it is
    paired with, first one rank alone, whose spread counts. `only`: the one work it is for."""

    name: str
    mode: str = ""
    hosts: tuple[int, ...] = ()
    trainer: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1
    lr: float = 1.0
    epochs: int = 1
    against: tuple[str, ...] = (ALONE,)
    only: str = ""

    def on(self, work: Work) -> bool:
        return self.only in ("", work.name) and (not work.contenders or self.name in work.contenders)

    def steps(self, work: Work) -> int:
        """Of everybody together, for schedules."""
        return work.epochs * self.epochs * math.ceil(work.samples / (work.batch_size * self.batch))

    def arguments(self, work: Work) -> list[str]:
        """Of the example."""
        values = {
            "epochs": work.epochs * self.epochs, "batch-size": work.batch_size * self.batch, "lr": work.lr * self.lr
        }  # fmt: skip
        return [*work.argv, *(word for name, value in values.items() for word in (f"--{name}", str(value)))]

    def ranks(self) -> dict[str, list[int]]:
        """Host → its ranks."""
        starts = [sum(self.hosts[:number]) for number in range(len(self.hosts))]
        return {f"host-{n}": [*range(first, first + self.hosts[n])] for n, first in enumerate(starts)}


MODES = ("cpu_sync", "cpu_cadence", "cpu_async", "nccl_sync (gloo)", "nccl_cadence (gloo)")
SHORTER = "cpu_cadence, ten batches a window"
BY_SHARES = tuple(f"{mode}, rate by its shares" for mode in ("cpu_cadence", "cpu_async", "nccl_cadence"))
BOTH = f"{SHORTER}, rate by its shares"
TRAINED = "charlm, trained for longer"
BITS = Metric("bits_per_byte", "held-out bits per byte", False)
SLOW = "1:2.5"  # rank 1 takes 2.5 times as long for each step, in every world
WORKS = [
    Work(
        "digits", "digits", (), samples=1437, batch_size=16, lr=0.01, epochs=8, seeds=5,
        metrics=(Metric("accuracy", "held-out accuracy", True), Metric("loss", "held-out loss, nats", False)),
        text="eight epochs of the `digits` example with a sixth of its channels: 720 batches of 16, SGD with momentum",
    ),
    Work(
        "charlm", "charlm", ("--kilobytes", "200"), samples=6249, batch_size=8, lr=2e-3, epochs=2, seeds=5,
        metrics=(BITS,),
        text="two epochs of the `charlm` example with one block of width 32 and 32 bytes in sight: 1,564 batches of 8"
        " windows, AdamW",
    ),
    # of learning rates from 2e-3 to 32e-3, a factor of √2 apart, one rank alone got furthest in two epochs with 5.7e-3
    Work(
        TRAINED, "charlm", ("--kilobytes", "200"), samples=6249, batch_size=8, lr=6e-3, epochs=8,
        seeds=5, metrics=(BITS,), contenders=(ALONE, *MODES, SHORTER, *BY_SHARES, BOTH),
        text="the same model for eight epochs, 6,256 batches, with the learning rate that suits one rank alone best",
    ),
]  # fmt: skip
ONE_BOX, TWO_HOSTS = (2,), (1, 1)
# A step of each of two ranks is one step of the average for twice the samples, so it has to reach twice as far.
LINEAR: dict[str, Any] = {"lr_scale_ratio": 1.0}
# Where one does 2.5 times as much, two ranks are 1 / (0.71² + 0.29²) = 1.69 ranks: so far does a step have to reach.
SHARES: dict[str, Any] = {"lr_scale_ratio": 0.69}
# three batches of the slow rank, ten in all: many averages, for what adds up from average to average
SHORT: dict[str, Any] = {"anchor": 3, "max_anchor": 3}
CONTENDERS = [
    Contender(ALONE, against=()),
    Contender("cpu_sync", "cpu_sync", ONE_BOX, LINEAR),
    Contender("cpu_cadence", "cpu_cadence", ONE_BOX, LINEAR),
    Contender("cpu_async", "cpu_async", ONE_BOX, LINEAR),
    Contender("nccl_sync (gloo)", "nccl_sync", ONE_BOX, LINEAR),
    Contender("nccl_cadence (gloo)", "nccl_cadence", ONE_BOX, LINEAR),
    Contender(EXACT, "cpu_cadence", TWO_HOSTS, {**SHORT, **LINEAR}),
    Contender("bf16, two hosts", "cpu_cadence", TWO_HOSTS, {**SHORT, **LINEAR, "wire": "bf16"}, against=(ALONE, EXACT)),
    Contender("int8, two hosts", "cpu_cadence", TWO_HOSTS, {**SHORT, **LINEAR, "wire": "int8"}, against=(ALONE, EXACT)),
    # no linear rule on top: an outer momentum reaches further by itself
    Contender("nesterov", "cpu_cadence", ONE_BOX, {**SHORT, "outer": "nesterov"}),
    Contender("slow_momentum", "cpu_cadence", ONE_BOX, {**SHORT, "outer": "slow_momentum"}),
    # what happens to those who change nothing in their script, and what one rank alone makes of such batches
    Contender("cpu_sync, learning rate as it is", "cpu_sync", ONE_BOX),
    Contender("cpu_cadence, learning rate as it is", "cpu_cadence", ONE_BOX),
    Contender("one rank alone, twice the batch and rate", batch=2, lr=2.0),
    Contender(SHORTER, "cpu_cadence", ONE_BOX, {**SHORT, **LINEAR}, only=TRAINED),
    *(Contender(name, name.partition(",")[0], ONE_BOX, SHARES, only=TRAINED) for name in BY_SHARES),
    Contender(BOTH, "cpu_cadence", ONE_BOX, {**SHORT, **SHARES}, only=TRAINED),
    # outer optimizers with three times as many averages, which are the steps that they take
    Contender(LONGER, epochs=3, against=(), only="digits"),
    Contender(
        "nesterov, three times as long", "cpu_cadence", ONE_BOX, {**SHORT, "outer": "nesterov"},
        epochs=3, against=(LONGER,), only="digits",
    ),
    Contender(
        "slow_momentum, three times as long", "cpu_cadence", ONE_BOX, {**SHORT, "outer": "slow_momentum"},
        epochs=3, against=(LONGER,), only="digits",
    ),
]  # fmt: skip

"""Which worlds are compared, with whom, and on which examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALONE = "one rank alone"
EXACT = "exact, two hosts"


@dataclass(frozen=True)
class Work:
    """An example of docs/examples: its arguments, its batches in all, the metric its `evaluate` gives, and which way is
    good."""

    example: str
    argv: tuple[str, ...]
    steps: int
    metric: str
    higher_is_better: bool
    text: str


@dataclass(frozen=True)
class Contender:
    """`hosts`: ranks on each, none for a run alone; the hub is beside the first. `trainer`: what the example's Trainer
    is given besides. `against`: the contenders whose seeds it is paired with."""

    name: str
    mode: str = ""
    hosts: tuple[int, ...] = ()
    trainer: Mapping[str, Any] = field(default_factory=dict)
    against: tuple[str, ...] = (ALONE,)

    def ranks(self) -> dict[str, list[int]]:
        """Host → its ranks."""
        starts = [sum(self.hosts[:number]) for number in range(len(self.hosts))]
        return {f"host-{n}": [*range(first, first + self.hosts[n])] for n, first in enumerate(starts)}


SLOW = "1:2.5"  # rank 1 takes 2.5 times as long for each step, in every world
WORKS = [
    Work(
        "digits", ("--epochs", "8"), 8 * 90, "accuracy", True,
        "eight epochs of the `digits` example with a sixth of its channels, held-out accuracy",
    ),
    Work(
        "charlm", ("--kilobytes", "100", "--epochs", "3"), 3 * 66, "bits_per_byte", False,
        "three epochs of the `charlm` example over 100 kB of text, held-out bits per byte (less is better)",
    ),
]  # fmt: skip
ONE_BOX, TWO_HOSTS = (2,), (1, 1)
# three batches of the slow rank, ten in all: some 45 averages, for what adds up from average to average
SHORT: dict[str, Any] = {"anchor": 3, "max_anchor": 3}
CONTENDERS = [
    Contender(ALONE),
    Contender("cpu_sync", "cpu_sync", ONE_BOX),
    Contender("cpu_cadence", "cpu_cadence", ONE_BOX),
    Contender("cpu_async", "cpu_async", ONE_BOX),
    # the linear rule for two ranks: the learning rate twice as high
    Contender("cpu_cadence, lr_scale_ratio 1", "cpu_cadence", ONE_BOX, {"lr_scale_ratio": 1.0}),
    Contender("nccl_sync (gloo)", "nccl_sync", ONE_BOX),
    Contender("nccl_cadence (gloo)", "nccl_cadence", ONE_BOX),
    Contender(EXACT, "cpu_cadence", TWO_HOSTS, SHORT),
    Contender("bf16, two hosts", "cpu_cadence", TWO_HOSTS, {**SHORT, "wire": "bf16"}, (ALONE, EXACT)),
    Contender("int8, two hosts", "cpu_cadence", TWO_HOSTS, {**SHORT, "wire": "int8"}, (ALONE, EXACT)),
    Contender("nesterov", "cpu_cadence", ONE_BOX, {**SHORT, "outer": "nesterov"}),
    Contender("slow_momentum", "cpu_cadence", ONE_BOX, {**SHORT, "outer": "slow_momentum"}),
    # the same reach as a plain average: outer_lr = 1 - outer_momentum
    Contender(
        "slow_momentum, outer_lr 0.3", "cpu_cadence", ONE_BOX, {**SHORT, "outer": "slow_momentum", "outer_lr": 0.3}
    ),
]

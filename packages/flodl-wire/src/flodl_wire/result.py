"""``result.json``: what a run did, in figures. Additive only."""

from __future__ import annotations

import msgspec

VERSION = 1


class RankResult(msgspec.Struct, omit_defaults=False):
    rank: int
    host: str
    device: str
    batches: int
    samples: int
    busy_s: float  # computing: forward, backward, step, data
    wait_s: float  # waiting for the others and averaging
    samples_per_s: float  # samples / busy_s


class EpochResult(msgspec.Struct):
    epoch: int
    loss: float | None
    wall_s: float
    samples: int
    eval: dict[str, float] | None = None


class RunResult(msgspec.Struct):
    """balance = (samples / wall_s) / Σ_r (samples_r / busy_s_r); wall_s runs from the first batch to the last average."""

    run: str
    mode: str
    world_size: int
    verdict: str = "done"  # done | failed
    degraded: bool = False
    why: str = ""
    wall_s: float = 0.0
    samples: int = 0
    samples_per_s: float = 0.0
    balance: float | None = None
    sync_share: float | None = None
    rounds: int = 0
    round_ms_median: float | None = None
    ranks: list[RankResult] = []
    epochs: list[EpochResult] = []
    v: int = VERSION

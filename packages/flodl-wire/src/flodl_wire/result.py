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

    def figures(self) -> dict[str, float]:
        """What the evaluation found, by the names that a line for people gives them: its loss stands beside training's
        there.
        """
        return {"evaluated loss" if name == "loss" else name: value for name, value in (self.eval or {}).items()}


class RunResult(msgspec.Struct):
    """balance = (samples / wall_s) / Σ_r (samples_r / busy_s_r); wall_s: first batch to last average."""

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
    epochs: list[EpochResult] = []  # of a resumed run from the first one on
    undone: int = 0  # samples whose work was not finite and stands in no average
    resumed: str = ""  # the checkpoint this run went on from
    collective: str | None = None  # nccl_* modes: what moved the tensors, nccl or gloo
    v: int = VERSION

    def __repr__(self) -> str:
        """One line for people, as ``print(Trainer(...).run())`` shows it."""
        parts = [
            f"{_count(len(self.epochs), 'epoch')}, {self.samples} samples in {self.wall_s:.1f} s"
            f" ({self.samples_per_s:.0f}/s)",
            f"{_count(self.world_size, 'rank')}, {self.mode}",
        ]
        if self.undone:
            parts.append(f"{self.undone} samples left out, not finite")
        if self.epochs and self.epochs[-1].loss is not None:
            parts.append(f"loss {self.epochs[-1].loss:.4g}")
        evals = [epoch.figures() for epoch in self.epochs if epoch.eval]
        if evals:
            parts.append(", ".join(f"{name} {value:.4g}" for name, value in evals[-1].items()))
        if self.balance is not None and self.world_size > 1:
            parts.append(f"balance {self.balance:.2f}")
        state = self.verdict + (" (degraded)" if self.degraded else "") + (f": {self.why}" if self.why else "")
        return f"<run {self.run} {state}; {'; '.join(parts)}>"


def _count(number: int, of: str) -> str:
    return f"{number} {of}{'s' if number != 1 else ''}"

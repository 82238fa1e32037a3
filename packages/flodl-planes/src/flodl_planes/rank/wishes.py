"""What a user asks of the Trainer about steps, saves and failure, checked. Without torch, as terms.py."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Any

from flodl_planes.rank.refusal import is_number, is_whole, refuse

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
NAN = ("stop", "skip")
PRECISIONS = ("bf16", "fp16")


@dataclass(frozen=True)
class Conveniences:
    """Of steps: clipping, gathering, precision, schedule."""

    clip_norm: float | None = None
    accumulate: int = 1
    amp: str | None = None
    scheduler: Any = None  # a function from the optimizer to a scheduler
    scheduler_by: str = "step"
    lr_scale_ratio: float = 0.0

    def __post_init__(self) -> None:
        """Raises Refused naming the first argument that cannot be meant."""
        if self.clip_norm is not None and not (is_number(self.clip_norm) and self.clip_norm > 0):
            raise refuse("clip_norm", self.clip_norm, "it is the largest norm of a step's gradients", "e.g. 1.0")
        if not (is_whole(self.accumulate) and self.accumulate >= 1):
            raise refuse("accumulate", self.accumulate, "it counts batches per step", "use a whole number, 1 or more")
        if self.amp is not None and self.amp not in PRECISIONS:
            raise refuse("amp", self.amp, "there is no such precision", "use 'bf16' or 'fp16', or leave it out")
        if self.scheduler is not None and not callable(self.scheduler):
            fix = "pass a function: scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1000)"
            raise refuse("scheduler", self.scheduler, "it cannot be called", fix)
        if self.scheduler_by not in ("step", "epoch"):
            raise refuse("scheduler_by", self.scheduler_by, "it says what moves the schedule", "use 'step' or 'epoch'")
        if not (is_number(self.lr_scale_ratio) and self.lr_scale_ratio >= 0):
            why = "rates are multiplied by 1 + (ranks - 1) times it"
            raise refuse("lr_scale_ratio", self.lr_scale_ratio, why, "use 0 (off) to 1 (the linear rule)")


@dataclass(frozen=True)
class Safety:
    """Of saves and failure, as the hub gets it. Make it with `read`."""

    max_failure: int | float | None = None
    checkpoint_every: int | float | None = None
    resume: str | None = None
    stall_timeout: float | None = None
    nan: str = "stop"
    callback_rank: int | None = None

    @classmethod
    def read(
        cls,
        max_failure: object,
        checkpoint_every: object,
        resume: object,
        stall_timeout: object,
        nan: object,
        callback_rank: object,
    ) -> Safety:
        """As they were given to the Trainer. Raises Refused naming the first that cannot be meant."""
        if nan not in NAN:
            why = "it says what becomes of work that is not finite"
            raise refuse("nan", nan, why, "use 'stop' (the run fails) or 'skip' (the work is left out)")
        if stall_timeout is not None and not (is_number(stall_timeout) and stall_timeout > 0):  # type: ignore[operator]
            why = "it is the time after which a rank that stands still is ended"
            raise refuse("stall_timeout", stall_timeout, why, "use seconds, or leave it out: then nobody is")
        if callback_rank is not None and not (is_whole(callback_rank) and callback_rank >= 0):  # type: ignore[operator]
            why = "it is the rank that evaluates"
            raise refuse("callback_rank", callback_rank, why, "use a rank's number, or leave it out for the fastest")
        return cls(
            read_max_failure(max_failure),
            read_every(checkpoint_every),
            read_resume(resume),
            None if stall_timeout is None else float(stall_timeout),  # type: ignore[arg-type]
            str(nan),
            callback_rank,  # type: ignore[arg-type]
        )


def read_max_failure(given: object) -> int | float | None:
    """Ranks as a whole number, or a share of the world as a float in (0, 1]; "50%" is 0.5."""
    limit = given
    if isinstance(given, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*%\s*", given):
        limit = float(given.strip().rstrip("%")) / 100
    if limit is None or (is_whole(limit) and limit >= 1):  # type: ignore[operator]
        return limit  # type: ignore[return-value]
    if isinstance(limit, float) and math.isfinite(limit) and 0 < limit <= 1:
        return limit
    raise refuse(
        "max_failure",
        given,
        "it is how many dead ranks end the run, or which share of the world",
        "use 1 (none tolerated), 2, … or a share such as '50%' or 0.5; leave it out to go on while one rank lives",
    )


def read_every(given: object) -> int | float | None:
    """Epochs as a whole number, seconds as a float."""
    if given is None or (is_whole(given) and given >= 1):  # type: ignore[operator]
        return given  # type: ignore[return-value]
    if isinstance(given, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min|h)\s*", given)
        if found and float(found[1]) > 0:
            return float(found[1]) * _UNITS[found[2]]
    raise refuse(
        "checkpoint_every",
        given,
        "it is no number of epochs and no time",
        "use 2 (epochs), '300s', '10min' or '1h', or None for one at the end",
    )


def read_resume(given: object) -> str | None:
    if given is None or (isinstance(given, (str, os.PathLike)) and os.fspath(given)):
        return None if given is None else str(given)
    fix = "use 'auto', 'latest', a run's id or a path, or leave it out"
    raise refuse("resume", given, "it names no checkpoint", fix)

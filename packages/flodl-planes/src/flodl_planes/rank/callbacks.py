"""What the script wants done with the averaged model between two windows, on the rank that has the role."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flodl_wire.plane_messages import EvalDone, Plan

if TYPE_CHECKING:
    import torch

    from flodl_planes.rank.windows import Windows


@dataclass(frozen=True)
class Callbacks:
    """evaluate(model) → metrics; on_epoch(model, epoch, metrics); on_checkpoint(model, epoch). Each may be missing."""

    evaluate: Callable[[torch.nn.Module], Mapping[str, float]] | None = None
    on_epoch: Callable[[torch.nn.Module, int, dict[str, float]], Any] | None = None
    on_checkpoint: Callable[[torch.nn.Module, int], Any] | None = None

    @property
    def each_epoch(self) -> bool:
        """Whether an epoch's end asks for anything."""
        return self.evaluate is not None or self.on_epoch is not None

    def act(self, plan: Plan, model: torch.nn.Module, device: torch.device, windows: Windows) -> None:
        """What `plan` asks for before its batches. The model's mode and the random streams are as before afterwards."""
        if plan.evaluate is not None and self.each_epoch:
            from flodl_planes.rank.evaluation import aside, evaluated

            began = time.perf_counter()
            metrics = evaluated(model, self.evaluate, device) if self.evaluate is not None else {}
            if self.on_epoch is not None:
                with aside(model, device):
                    self.on_epoch(model, plan.evaluate, metrics)
            windows.evaluated(EvalDone(plan.evaluate, metrics, (time.perf_counter() - began) * 1e3))
        if plan.save is not None:
            self.saved(model, plan.epoch, device)
            windows.save(plan.save)

    def saved(self, model: torch.nn.Module, epoch: int, device: torch.device) -> None:
        """A checkpoint of this model is being taken, in that epoch."""
        if self.on_checkpoint is not None:
            from flodl_planes.rank.evaluation import aside

            with aside(model, device):
                self.on_checkpoint(model, epoch)

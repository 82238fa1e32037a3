"""From a loss to a step: mixed precision, gathered gradients, clipping, the schedule. And all of it saved and put back.

The schedule runs over *global* steps, one for every batch that any rank does (divided by `accumulate`): what is written
for one device, with epochs × batches per epoch steps, means the same in every world. At a window's start the hub says
how many batches have been dealt; inside it each batch of ours stands for the others' share too.
"""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from flodl_planes.rank import misuse
from flodl_planes.rank.wishes import Conveniences
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import Plan

# fp16: torch's scaler halves its scale at each step whose gradients are not finite, down to 0, from where nothing comes
# back: a batch in a thousand that is broken takes it there in the end. Below 1 a scale only costs digits.
SMALLEST_SCALE = 1.0
LOOK_EVERY = 16  # steps: a look waits for the device, which would have nothing queued meanwhile
MOST_LEFT_OUT = 48  # steps in a row from that scale on: work that is finite at no scale


class Stepper:
    """Steps `optimizer`. `gathered`: batches whose gradients wait for a step; `scaled`: the factor that the linear rule
    has put on its rates.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: list[torch.nn.Parameter],
        device: torch.device,
        wishes: Conveniences,
        world_size: int,
    ) -> None:
        self.optimizer = optimizer
        self._parameters = parameters
        self._device = device
        self._wishes = wishes
        self.scaled = 1.0 + (world_size - 1) * wishes.lr_scale_ratio
        if self.scaled != 1.0:
            _multiply_rates(optimizer, self.scaled)
        self._scheduler = None
        if wishes.scheduler:
            rates = [group.get("lr") for group in optimizer.param_groups]
            self._scheduler = misuse.check_scheduler(wishes.scheduler(optimizer))
            if wishes.lr_scale_ratio:
                misuse.check_linear_rule(self._scheduler, optimizer, rates)
        self._scheduled = 0  # steps that the scheduler has taken
        self._stepped = False  # this rank has, in this run
        self._scaler: Any = torch.amp.GradScaler(device.type) if wishes.amp == "fp16" else None
        self._since_look = 0  # steps
        self._left_out = 0  # steps in a row, from the smallest scale on
        self.gathered = 0
        self._start, self._batches = 0, 0  # of the window: global batches before it, ours that are done
        self._all, self._ours = 1, 1  # of the window: batches of all ranks, of ours
        self.under_way = False  # a step was begun and its batch is not counted yet

    @property
    def learning_rate(self) -> float | None:
        """The largest of the optimizer's groups; None where there is none that counts."""
        rates = [float(group["lr"]) for group in self.optimizer.param_groups if "lr" in group]
        return max((rate for rate in rates if math.isfinite(rate)), default=None)

    def autocast(self) -> Any:
        """The context in which the forward pass and the loss are computed."""
        if self._wishes.amp is None:
            return contextlib.nullcontext()
        kind = torch.bfloat16 if self._wishes.amp == "bf16" else torch.float16
        return torch.autocast(self._device.type, dtype=kind)

    def begin(self, plan: Plan, batches: int) -> None:
        """A window of `batches` of ours begins."""
        self._start, self._batches = plan.step, 0
        self._all, self._ours = max(plan.world_batches, batches), max(1, batches)
        self._schedule(plan.epoch if self._wishes.scheduler_by == "epoch" else plan.step // self._wishes.accumulate)

    def backward(self, loss: torch.Tensor) -> None:
        if self._scaler is not None:
            loss = self._scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> bool:
        """A batch is through; True when the optimizer stepped."""
        self.under_way = True
        self.gathered += 1
        self._batches += 1
        if self.gathered < self._wishes.accumulate:
            return False
        self._step()
        return True

    def counted(self) -> None:
        """The batch is through and counted."""
        self.under_way = False

    def flush(self) -> None:
        """The window ends: what was gathered becomes a step, for the average is made of whole ones. The schedule comes
        to its end too where it had no batches for us.
        """
        if self.gathered:
            self._step()
        elif self._batches == 0:
            self._schedule_at(self._start + self._all)

    def _step(self) -> None:
        optimizer, wishes = self.optimizer, self._wishes
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)
        if self.gathered > 1:
            grads = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
            torch._foreach_div_(grads, float(self.gathered))
        if wishes.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, wishes.clip_norm)
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaled_step(self._scaler)
        optimizer.zero_grad(set_to_none=True)
        self.gathered = 0
        self._schedule_at(self._start + self._batches * self._all // self._ours)
        self._stepped = True

    def _scaled_step(self, scaler: Any) -> None:
        """Or none, where a gradient is not finite. Raises Broken when that has been so for too long."""
        scaler.step(self.optimizer)
        scaler.update()
        self._since_look += 1
        if self._since_look < LOOK_EVERY:
            return
        self._since_look, scale = 0, scaler.get_scale()
        self._left_out = self._left_out + LOOK_EVERY if scale <= SMALLEST_SCALE / 2**LOOK_EVERY else 0
        if scale < SMALLEST_SCALE:
            scaler.update(SMALLEST_SCALE)
        if self._left_out > MOST_LEFT_OUT:
            raise Broken(
                "not-finite",
                "cannot go on training: no step's gradients are finite any more",
                f"the gradient scaler (amp='fp16') is down at {SMALLEST_SCALE:g} and leaves every step out",
                "lower the learning rate, look at the loss for infinities, or use amp='bf16'",
            )

    def _schedule_at(self, batches: int) -> None:
        """All ranks have done so many."""
        if self._wishes.scheduler_by == "step":
            self._schedule(batches // self._wishes.accumulate)

    def _schedule(self, target: int) -> None:
        if self._scheduler is None or target <= self._scheduled:
            return
        with contextlib.ExitStack() as quiet:
            if not self._stepped:  # torch complains where this rank's optimizer has not stepped: others' have
                quiet.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("ignore", message=r".*lr_scheduler\.step\(\).*before.*optimizer\.step")
            while self._scheduled < target:
                self._scheduler.step()
                self._scheduled += 1

    # saved and put back

    def state(self) -> dict[str, Any]:
        """A tree of everything that the next step depends on."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
            "scheduled": self._scheduled,
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
            "scaled": self.scaled,
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """What does not fit this optimizer or scheduler is left as new, with a line on stderr."""
        with _kept("optimizer"):
            self.optimizer.load_state_dict(tree["optimizer"])
            _multiply_rates(self.optimizer, self.scaled / float(tree["scaled"]))
        if self._scheduler is not None and tree["scheduler"] is not None:
            with _kept("scheduler"):
                bases = [(each, list(each.base_lrs)) for each in _nested(self._scheduler) if hasattr(each, "base_lrs")]
                self._scheduler.load_state_dict(tree["scheduler"])
                for each, rates in bases:
                    each.base_lrs = rates  # of this world: the linear rule may have scaled them
                self._scheduled = int(tree["scheduled"])
        if self._scaler is not None and tree["scaler"]:
            with _kept("gradient scaler"):
                self._scaler.load_state_dict(tree["scaler"])

    def forget(self) -> None:
        """The optimizer's moments were made from work that is not finite: begin them anew."""
        self.optimizer.state.clear()


def _nested(scheduler: Any) -> Iterator[Any]:
    """A scheduler and those that it is made of."""
    yield scheduler
    for inner in getattr(scheduler, "_schedulers", []):
        yield from _nested(inner)


@contextlib.contextmanager
def _kept(what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, RuntimeError, AttributeError) as err:
        print(f"flodl: the {what} begins anew: its saved state does not fit ({err})", file=sys.stderr)


def _multiply_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    if factor == 1.0:
        return
    for group in optimizer.param_groups:
        for key in ("lr", "initial_lr"):
            if key in group:
                group[key] = group[key] * factor

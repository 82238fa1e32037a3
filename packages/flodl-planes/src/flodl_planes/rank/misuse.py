"""The Trainer used in a way that cannot be meant: each case with what, why and fix."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from flodl_planes.rank.refusal import refuse
from flodl_wire.faults import Refused

if TYPE_CHECKING:
    import torch

LOOP = "for epoch in t.epochs(): for batch in t.batches(): t.backward(loss); t.step()"


def check_functions(**functions: Any) -> None:
    """model and optimizer must be given; the others may be None. Raises Refused for what cannot be called."""
    hints = {
        "model": "pass the function that builds the module (build_model, not build_model()), or a module",
        "optimizer": "pass a function: optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
        "loss": "pass a function (model, batch) → mean loss of the batch",
        "collate": "pass a function from a list of samples to a batch, or leave it out",
        "evaluate": 'pass a function model → {"accuracy": 0.97}, or leave it out',
        "on_epoch": "pass a function (model, epoch, metrics), or leave it out",
        "on_checkpoint": "pass a function (model, epoch), or leave it out",
    }
    for name, function in functions.items():
        if not callable(function) and not (function is None and name not in ("model", "optimizer")):
            raise refuse(name, function, "it cannot be called", hints[name])


def check_model(model: Any) -> torch.nn.Module:
    """What model= built. Raises Refused when it is no module or nothing in it learns."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise refuse("model", model, "the function returned no torch.nn.Module", "return the module that it builds")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise refuse("model", model, "it has no parameter that learns", "leave requires_grad=True on those that shall")
    return model


def check_optimizer(optimizer: Any, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """What optimizer= made of the model's parameters. Raises Refused when it cannot step, or moves anything else."""
    if not (callable(getattr(optimizer, "step", None)) and callable(getattr(optimizer, "zero_grad", None))):
        why = "the function returned nothing that has step() and zero_grad()"
        fix = "return a torch optimizer: lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
        if isinstance(optimizer, (list, tuple, dict)) and len(optimizer) > 1:
            why = f"the function returned {len(optimizer)} of them, and the Trainer moves one"
            fix = "return one with a parameter group for each network: torch.optim.Adam([{'params': …}, {'params': …}])"
        raise refuse("optimizer", optimizer, why, fix)
    needed = _needed(optimizer.step)
    if needed:
        why = f"its step() needs {needed}, and the Trainer calls it once per step, with no arguments"
        raise refuse("optimizer", optimizer, why, "use one whose step() needs nothing, such as SGD or AdamW")
    ours = {id(parameter) for parameter in parameters}
    groups = getattr(optimizer, "param_groups", [])
    strangers = sum(id(tensor) not in ours for group in groups for tensor in group["params"])
    if strangers:
        are = "is" if strangers == 1 else "are"
        why = f"{strangers} of its tensors {are} not in the model, so neither averaged nor saved"
        fix = "make it of the parameters that the function is given, and hold every tensor that learns in the module"
        raise refuse("optimizer", optimizer, why, fix)
    return optimizer  # type: ignore[no-any-return]


def _needed(function: Any) -> str:
    """The first argument that a call cannot leave out; "" for none."""
    try:
        arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not tell
        return ""
    bare = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return next((a.name for a in arguments if a.default is inspect.Parameter.empty and a.kind not in bare), "")


def check_scheduler(scheduler: Any) -> Any:
    """What scheduler= made. Raises Refused when it cannot be stepped by us."""
    if not callable(getattr(scheduler, "step", None)):
        fix = "return a scheduler: scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1000)"
        raise refuse("scheduler", scheduler, "the function returned nothing that has step()", fix)
    if type(scheduler).__name__ == "ReduceLROnPlateau":
        why = "it moves by a metric, which only the rank that evaluates has"
        raise refuse("scheduler", scheduler, why, "use a schedule over steps, e.g. CosineAnnealingLR")
    return scheduler


def check_linear_rule(scheduler: Any, optimizer: torch.optim.Optimizer, rates: list[Any]) -> None:
    """`rates`: of the optimizer's groups before the scheduler was made, which the linear rule has multiplied. Raises
    Refused when the scheduler brings rates of its own instead.
    """
    if any(group.get("initial_lr", rate) != rate for group, rate in zip(optimizer.param_groups, rates, strict=True)):
        raise Refused(
            "bad-scheduler",
            f"cannot train with lr_scale_ratio and {type(scheduler).__name__}",
            "it brings learning rates of its own, which the linear rule does not reach",
            "leave lr_scale_ratio out and multiply its rates yourself: local_cluster().world_size is the world's size",
        )


def check_loss(loss: Any) -> None:
    """Raises Refused for a loss that is no scalar tensor or reaches no parameter."""
    import torch

    if not isinstance(loss, torch.Tensor):
        if loss is None:
            why, fix = "it is None", "return the loss: is a `return` missing?"
        elif isinstance(loss, (int, float)):
            why, fix = f"it is a {type(loss).__name__}", "return the tensor itself, without .item()"
        else:
            why, fix = f"it is a {type(loss).__name__}", "return the loss alone, a scalar tensor"
        raise Refused("bad-loss", "cannot train on this loss", why, fix)
    if loss.numel() != 1:
        raise Refused(
            "bad-loss",
            "cannot train on this loss",
            f"it is no scalar but has the shape {list(loss.shape)}",
            "return the mean over the batch: loss.mean(), or reduction='mean' of torch's losses",
        )
    if not loss.requires_grad:
        raise Refused(
            "bad-loss",
            "cannot train on this loss",
            "it does not depend on any parameter that learns",
            "compute it from model(batch), outside torch.no_grad() and without .detach()",
        )


def no_loss() -> Refused:
    fix = f"pass loss=function(model, batch), or write the loop yourself: with Trainer(…) as t: {LOOP}"
    return Refused("no-loss", "cannot run()", "the Trainer has no loss", fix)


def used_twice() -> Refused:
    return Refused("used-twice", "cannot train again", "this Trainer has run already", "make a new one")


def second_trainer() -> Refused:
    return Refused(
        "second-trainer",
        "cannot begin a second training here",
        "a run of several ranks has one Trainer, and this script's has begun already",
        "put the second training into a script of its own",
    )


def not_open(call: str) -> Refused:
    return Refused(
        "not-open",
        f"cannot use {call} here",
        "training has not begun, or is over",
        f"inside `with Trainer(…) as t:` — {LOOP}",
    )


def no_epoch() -> Refused:
    return Refused("no-epoch", "cannot use t.batches() here", "no epoch has begun", LOOP)


def no_batch(call: str) -> Refused:
    return Refused("no-batch", f"cannot use {call} here", "there is no batch at hand", LOOP)


def nothing_done() -> Refused:
    why = "its loop took batches, but called neither t.backward(loss) nor t.step() on any of them"
    return Refused("nothing-done", "cannot average this rank's work", why, LOOP)


def never_stepped(batches: int) -> Refused:
    why = f"its loop has called t.backward(loss) {batches} times and t.step() never"
    fix = "call t.step() after each t.backward(loss); to gather several batches into one step, Trainer(accumulate=…)"
    return Refused("never-stepped", "cannot learn anything from this rank's batches", why, fix)


def left_early(call: str) -> Refused:
    return Refused(
        "left-early",
        "cannot finish the run",
        f"the loop over {call} was left before its end, and the other ranks wait for this one's share",
        f"go through {call} to the end; to train less, pass fewer epochs or a smaller dataset",
    )

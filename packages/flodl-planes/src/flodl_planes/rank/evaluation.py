"""The user's evaluation, called so that it leaves no trace in training."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from flodl_wire.faults import Refused


def evaluated(
    model: torch.nn.Module, evaluate: Callable[[torch.nn.Module], Mapping[str, Any]], device: torch.device
) -> dict[str, float]:
    """`evaluate(model)` in eval mode and without gradients; afterwards each submodule's mode and the random streams
    are as before.

    Values that are not finite are left out with a line on stderr: JSON, in which they travel, has no word for them.
    Raises Refused when the result is no mapping from names to numbers.
    """
    with aside(model, device):
        found = evaluate(model)
    if not isinstance(found, Mapping):
        raise _refused(f"it returned {type(found).__name__}")
    metrics = {}
    for name, value in found.items():
        try:
            number = float(value.item() if hasattr(value, "item") else value)  # an array of one is a number
        except (TypeError, ValueError, RuntimeError):
            raise _refused(f"its {name!r} is no number but {type(value).__name__}") from None
        if math.isfinite(number):
            metrics[str(name)] = number
        else:
            print(f"flodl: {name} is {number}, which is left out of the records", file=sys.stderr)
    return metrics


@contextlib.contextmanager
def aside(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """In eval mode, without gradients; afterwards each submodule's mode and torch's streams are as before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        for module, training in modes:
            module.training = training


def _refused(why: str) -> Refused:
    return Refused(
        "bad-evaluate", "cannot use the result of evaluate=", why, 'return a dict of numbers: {"accuracy": 0.97}'
    )

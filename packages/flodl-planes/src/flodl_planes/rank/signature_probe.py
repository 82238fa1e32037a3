"""A training script that is asked what its model and data are: it says so and exits, before it trains.

`fdl join` asks so that a window can refuse a host with another model at the door, by the name of the first tensor
that differs, and not when every rank has loaded. The answer is one line on stdout; what the script prints besides
means nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from flodl_planes.rank import data_signature
from flodl_wire import environ

if TYPE_CHECKING:
    import torch

LINE = "flodl-model-sig: "  # flodl-agent looks for it


def asked() -> bool:
    return environ.MODEL_SIG_PROBE in os.environ


def answer(model: Callable[[], torch.nn.Module] | torch.nn.Module, data: Any, seed: int, given: str | None) -> NoReturn:
    """Build the model as training would, say what it is made of, and leave with exit 0."""
    import torch

    from flodl_planes.rank import misuse, seeds
    from flodl_planes.rank.schema import signature, slots_of

    seeds.plant(seed)
    built = misuse.check_model(model if isinstance(model, torch.nn.Module) else model())
    tensors = [slot.spec for slot in slots_of(built)]
    found = {"model_sig": signature(tensors), "dataset_sig": data_signature.of(data, given), "tensors": tensors}
    print(f"\n{LINE}{msgspec.json.encode(found).decode()}", flush=True)
    raise SystemExit(0)

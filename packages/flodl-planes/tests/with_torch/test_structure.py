"""A model that gets other tensors while it trains is refused by name; one that only gets other clothes is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from flodl_planes.rank.structure import Structure
from flodl_wire.faults import Refused


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3, bias=False))
        self.head = nn.Linear(3, 2)
        self.register_parameter("late", None)


def named(name: str, change: Callable[[Any], object]) -> Any:
    return pytest.param(change, name, id=name)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        named("extra.weight", lambda model: model.add_module("extra", nn.Linear(2, 2))),
        named("body.3.weight", lambda model: model.body.append(nn.Linear(3, 3))),
        named("head.weight", lambda model: setattr(model, "head", nn.Linear(3, 2))),
        named("body.1.weight", lambda model: model.body.__setitem__(1, nn.BatchNorm1d(6))),
        named("late", lambda model: setattr(model, "late", nn.Parameter(torch.ones(2)))),
        named("body.2.bias", lambda model: setattr(model.body[2], "bias", nn.Parameter(torch.ones(3)))),
        named("scale", lambda model: model.register_parameter("scale", nn.Parameter(torch.ones(1)))),
        named("body.mean", lambda model: model.body.register_buffer("mean", torch.zeros(3))),
    ],
)
def test_a_tensor_that_was_not_there_is_refused_by_name(change: Callable[[Any], object], name: str) -> None:
    model = Net()
    structure = Structure(model)
    structure.check()
    change(model)
    for _ in range(2):
        with pytest.raises(Refused, match=f"with {name}: it was not in the model when training began") as refused:
            structure.check()
    assert refused.value.fix


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.add_module("metric", nn.Identity()),
        lambda model: model.register_buffer("mask", torch.ones(2), persistent=False),
        lambda model: setattr(model, "body", nn.Sequential(model.body)),  # as torch.compile(model.body) wraps
        lambda model: setattr(model.head, "weight", nn.Parameter(torch.ones(2, 3))),
        lambda model: setattr(model, "late", model.head.bias),  # a tie
        lambda model: model.requires_grad_(False),
        lambda model: model.eval(),
    ],
    ids=["no tensors", "not persistent", "wrapped", "bound anew", "tied", "frozen", "eval"],
)
def test_what_is_averaged_all_the_same_may_change(change: Callable[[Any], object]) -> None:
    model = Net()
    structure = Structure(model)
    change(model)
    for _ in range(2):
        structure.check()

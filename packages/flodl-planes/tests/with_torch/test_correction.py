"""What a rank of cpu_async learns while its average is made is carried over onto it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from flodl_planes.plane.layout import lay_out
from flodl_planes.rank.correction import Corrected
from flodl_planes.rank.schema import slots_of


class Mixed(nn.Module):
    """Every kind of tensor: averaged in four dtypes, counted, and taken as it is."""

    def __init__(self) -> None:
        super().__init__()
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            self.register_parameter(f"in_{str(dtype)[6:]}", nn.Parameter(torch.randn(7, 3).to(dtype)))
        self.register_buffer("steps", torch.tensor(10))
        self.register_buffer("mask", torch.tensor([True, False, True]))


@pytest.fixture
def corrected() -> tuple[nn.Module, Corrected, np.ndarray[Any, Any]]:
    torch.manual_seed(0)
    model = Mixed()
    slots = slots_of(model)
    layout = lay_out([slot.spec for slot in slots])
    live = np.zeros(layout.total_bytes, np.uint8)
    return model, Corrected(slots, layout, live, torch.device("cpu")), live


def learn(model: nn.Module, by: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by)
        model.steps.add_(4)
        model.mask.copy_(torch.tensor([False, False, False]))


def test_learning_does_not_touch_what_others_read(corrected: Any) -> None:
    model, state, live = corrected
    state.settle()
    before = live.copy()
    learn(model, 0.25)
    assert np.array_equal(live, before)


def test_a_correction_is_the_average_and_what_was_learned_since(corrected: Any) -> None:
    model, state, live = corrected
    state.settle()
    snapshot = {name: tensor.double().clone() for name, tensor in model.state_dict().items()}
    other, _, theirs = model, state, np.empty_like(live)
    torch.manual_seed(1)
    peer = Mixed()
    peer.steps.fill_(100)
    slots = slots_of(peer)
    Corrected(slots, lay_out([slot.spec for slot in slots]), theirs, torch.device("cpu"))
    learn(other, 0.25)
    now = {name: tensor.double().clone() for name, tensor in other.state_dict().items()}

    measured = state.correct(theirs, measure=True)

    average = {name: tensor.double().clone() for name, tensor in peer.state_dict().items()}
    for name, parameter in model.named_parameters():
        expected = average[name] + (now[name] - snapshot[name])
        tolerance = {"float32": 1e-6, "float64": 1e-12, "bfloat16": 2e-2, "float16": 2e-3}[name[3:]]
        torch.testing.assert_close(parameter.double(), expected, rtol=0, atol=tolerance)
    assert model.steps.item() == 104  # the leader's hundred, and four of our own
    assert model.mask.tolist() == [True, False, True]
    named = [name for name, _ in model.named_parameters()]
    apart = sum(float((snapshot[name] - average[name]).norm() ** 2) for name in named) ** 0.5
    size = sum(float(average[name].norm() ** 2) for name in named) ** 0.5
    assert measured == pytest.approx(apart / size, rel=1e-3)


def test_who_learned_nothing_since_holds_exactly_the_average(corrected: Any) -> None:
    model, state, live = corrected
    state.settle()
    average = live.copy()
    model.in_float32.data = model.in_float32.data.clone()  # bound anew meanwhile: taken in again
    peer = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert state.correct(average, measure=False) is None
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, peer[name]), name


def test_after_a_round_that_everybody_waited_for_the_model_is_the_live_buffer(corrected: Any) -> None:
    model, state, _ = corrected
    state.settle()
    peer = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    learn(model, 1.0)
    state.refresh()
    assert all(torch.equal(tensor, peer[name]) for name, tensor in model.state_dict().items())


def test_a_snapshot_is_what_was_learned_until_then(corrected: Any) -> None:
    model, state, live = corrected
    before = live.copy()
    model.in_float32.data = model.in_float32.data.clone()  # bound anew: taken in again
    learn(model, 0.25)
    learned = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state.settle()
    snapshot = live.copy()
    assert not np.array_equal(snapshot, before)
    assert state.correct(snapshot, measure=True) == 0.0, "it is the snapshot that the average is held against"
    state.refresh()
    assert all(torch.equal(tensor, learned[name]) for name, tensor in model.state_dict().items())


def test_who_becomes_the_average_drops_what_it_has_learned(corrected: Any) -> None:
    model, state, live = corrected
    average = live.copy()
    first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    learn(model, 0.25)
    state.settle()
    learn(model, 0.25)
    state.become(average)
    assert all(torch.equal(tensor, first[name]) for name, tensor in model.state_dict().items())
    assert np.array_equal(live, average)

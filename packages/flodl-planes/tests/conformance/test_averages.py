"""Every average of every mode, worked out again in float64 by plain torch from what the ranks had handed in."""

from __future__ import annotations

from typing import Any

import conformance_ranks as ranks
import torch
from conformance_reference import check, ends
from safetensors.torch import load_file
from torch import nn


def test_two_ranks_of_unequal_speed_on_one_host(make_world: Any, mode: str) -> None:
    world = make_world(mode, {"here": [0, 1]})
    samples = 16 if mode.endswith("_sync") else 80
    outcome = world.run(lambda: ranks.train(world.folder, slow=1, rebind=True, samples=samples))
    assert (outcome.result.samples, outcome.codes) == (2 * samples, {0: 0, 1: 0}), outcome.logs()
    seen = check(world.folder)
    assert seen["average"] >= 4 and (seen["corrected"] > 0) == (mode == "cpu_async")
    assert seen["weights"] or mode.endswith("_sync"), "who is slower has done less"
    first, second = ends(world.folder)
    checkpoint = load_file(world.folder / "run" / "checkpoint.safetensors")
    assert set(checkpoint) == set(first)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]) and torch.equal(tensor, checkpoint[name]), name
    assert outcome.result.collective == ("gloo" if mode.startswith("nccl") else None)


def test_three_ranks_on_two_hosts_of_which_one_is_idle(make_world: Any, mode: str) -> None:
    world = make_world(mode, {"here": [0, 1], "there": [2]})
    outcome = world.run(lambda: ranks.train(world.folder, samples=4))  # two batches for three ranks
    assert (outcome.result.samples, outcome.codes) == (8, {0: 0, 1: 0, 2: 0}), outcome.logs()
    seen = check(world.folder)
    assert seen["average"] >= 6 and seen["idle"] >= 6
    states = ends(world.folder)
    assert len(states) == 3
    assert all(torch.equal(tensor, states[2][name]) for name, tensor in states[0].items())


def test_a_world_of_one(make_world: Any, mode: str) -> None:
    world = make_world(mode, {"here": [0]})
    outcome = world.run(lambda: ranks.train(world.folder, samples=10, epochs=1))
    assert outcome.result.samples == 10, outcome.logs()
    assert check(world.folder)["average"] >= 1


def test_a_model_whose_tensors_have_no_elements(make_world: Any, mode: str) -> None:
    class Empty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nothing = nn.Parameter(torch.zeros(0, 3))

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return batch.sum() + self.nothing.sum()

    world = make_world(mode, {"here": [0, 1]})
    outcome = world.run(lambda: ranks.train(world.folder, model=Empty, samples=10, epochs=1))
    assert (outcome.result.samples, outcome.codes) == (10, {0: 0, 1: 0}), outcome.logs()

"""Averages that travel encoded, and that the hub takes a step with: no reference is exact here, but everybody must mean
the same by them, and so must the checkpoint.
"""

from __future__ import annotations

from typing import Any

import conformance_ranks as ranks
import pytest
import torch
from conformance_reference import ends
from safetensors.torch import load_file


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("cpu_cadence", {"wire": "int8", "outer": "nesterov"}),
        ("cpu_sync", {"wire": "bf16"}),
        ("cpu_async", {"wire": "int8", "outer": "slow_momentum"}),
    ],
)
def test_every_host_and_the_checkpoint_hold_the_same_bits(make_world: Any, mode: str, asked: dict[str, Any]) -> None:
    world = make_world(mode, {"here": [0, 1], "there": [2]})
    outcome = world.run(lambda: ranks.train(world.folder, slow=1, samples=60, **asked))
    assert (outcome.result.samples, outcome.codes) == (120, {0: 0, 1: 0, 2: 0}), outcome.logs()
    states = ends(world.folder)
    checkpoint = load_file(world.folder / "run" / "checkpoint.safetensors")
    assert len(states) == 3
    for name, tensor in states[0].items():
        assert all(torch.equal(tensor, other[name]) for other in states[1:]), name
        assert torch.equal(tensor, checkpoint[name]), name
        assert not tensor.is_floating_point() or tensor.isfinite().all(), name

"""A rank that dies in the middle of a round, and one that stands still there and comes back, in every mode."""

from __future__ import annotations

from typing import Any

import conformance_ranks as ranks
import torch
from conformance_reference import check, ends

from flodl_wire.hub_messages import Notice


def test_one_stands_still_in_a_round_and_another_dies_in_a_later_one(make_world: Any, mode: str) -> None:
    """Three ranks on two hosts; the survivors hold one model, and every sample was merged once."""
    world = make_world(mode, {"here": [0, 1], "there": [2]})
    act = {2: {1: ranks.STOP}, 1: {2: ranks.KILL}}
    outcome = world.run(lambda: ranks.train(world.folder, act=act, samples=24))
    result = outcome.result
    assert (result.samples, result.degraded) == (48, True), outcome.logs()
    assert (outcome.codes, outcome.stopped) == ({0: 0, 1: -9, 2: 0}, ["rank 2"])
    assert any("rank 1 on here is lost" in message.text for message in outcome.told if isinstance(message, Notice))
    assert check(world.folder)["average"] >= 3
    first, second = ends(world.folder)
    assert all(torch.equal(first[name], second[name]) for name in first)

"""Worlds that cannot mean one run are refused by name."""

from __future__ import annotations

from typing import Any

import conformance_ranks as ranks
import pytest
from torch import nn

from flodl_planes import local_cluster


@pytest.mark.parametrize("mode", ["cpu_async", "nccl_cadence"])
def test_models_that_differ_by_one_dtype_are_refused_naming_the_tensor(make_world: Any, mode: str) -> None:
    def differing() -> nn.Module:
        model = ranks.Everything()
        if local_cluster().rank == 1:
            model.small.data = model.small.data.bfloat16()
        return model

    world = make_world(mode, {"here": [0, 1]})
    failed = world.run(lambda: ranks.train(world.folder, model=differing)).failure
    assert failed.code == "schema-differs" and "small (F16 7)" in failed.why and "small (BF16 7)" in failed.why


def test_a_script_of_another_mode_is_refused_before_it_joins(make_world: Any) -> None:
    world = make_world("cpu_async", {"here": [0]})
    outcome = world.run(lambda: ranks.train(world.folder, mode="nccl-sync"))
    assert outcome.failure.rank == 0
    (log,) = [log for log in outcome.logs() if log.startswith("rank 0")]
    assert "the run was started in mode cpu_async" in log


def test_a_model_with_nothing_to_learn_is_refused(make_world: Any) -> None:
    world = make_world("nccl_cadence", {"here": [0]})
    outcome = world.run(lambda: ranks.train(world.folder, model=nn.ReLU))
    assert any("no parameter that learns" in log for log in outcome.logs())

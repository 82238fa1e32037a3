from __future__ import annotations

import pytest
from window_worlds import cluster

from flodl_window import modes
from flodl_wire.faults import Refused


def test_processor_ranks_average_through_the_controller_by_default() -> None:
    assert modes.choose(None, cluster("cpu:2")) == ("cpu_cadence", "")


def test_gpus_average_among_themselves_by_default_where_every_rank_has_one() -> None:
    assert modes.choose(None, cluster("0,1")) == ("nccl_cadence", "")
    assert modes.choose(None, cluster("0,1", "cpu:2"))[0] == "cpu_cadence"


def test_processor_ranks_may_ask_for_an_nccl_mode_and_are_told_what_they_get() -> None:
    assert modes.choose("nccl-sync", cluster("cpu:2", "cpu:1")) == (
        "nccl_sync",
        "the ranks run on the processor: gloo takes NCCL's place",
    )


def test_dashes_are_taken_for_underscores() -> None:
    assert modes.choose("cpu-sync", cluster("cpu:2"))[0] == "cpu_sync"


@pytest.mark.parametrize(
    ("mode", "devices", "code", "fix"),
    [
        ("fast", "cpu:2", "bad-mode", "cpu_sync"),
        ("nccl_cadence", "cpu:2 0,1", "mode-needs-gpus", "use cpu_cadence"),
    ],
)
def test_a_mode_that_cannot_run_is_refused_with_one_that_can(mode: str, devices: str, code: str, fix: str) -> None:
    with pytest.raises(Refused) as caught:
        modes.choose(mode, cluster(*devices.split()))
    assert caught.value.code == code and fix in caught.value.fix

from __future__ import annotations

import pytest
from window_worlds import cluster

from flodl_window import modes
from flodl_wire.faults import Refused


def test_processor_ranks_average_through_the_controller_by_default() -> None:
    assert modes.choose(None, cluster("cpu:2")) == ("cpu_cadence", "")


def test_gpus_get_a_mode_this_version_has_and_are_told() -> None:
    mode, note = modes.choose(None, cluster("0,1"))
    assert mode == "cpu_cadence" and "later version" in note


def test_gpus_get_nccl_once_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(modes.NOT_YET, "nccl_cadence")
    assert modes.choose(None, cluster("0,1")) == ("nccl_cadence", "")
    assert modes.choose(None, cluster("0,1", "cpu:2"))[0] == "cpu_cadence"


def test_dashes_are_taken_for_underscores() -> None:
    assert modes.choose("cpu-sync", cluster("cpu:2"))[0] == "cpu_sync"


@pytest.mark.parametrize(
    ("mode", "devices", "code", "fix"),
    [
        ("fast", "cpu:2", "bad-mode", "cpu_sync"),
        ("nccl_cadence", "cpu:2", "mode-needs-gpus", "use cpu_cadence"),
        ("nccl_sync", "0,1", "mode-not-yet", "use cpu_sync"),
    ],
)
def test_a_mode_that_cannot_run_is_refused_with_one_that_can(mode: str, devices: str, code: str, fix: str) -> None:
    with pytest.raises(Refused) as caught:
        modes.choose(mode, cluster(devices))
    assert caught.value.code == code and fix in caught.value.fix

"""The run as state.json shows it."""

from __future__ import annotations

from typing import Any

import pytest
from window_worlds import Driven, cluster, formed, hello

from flodl_window import events as ev
from flodl_window.run import Run
from flodl_wire.faults import Refused
from flodl_wire.hub_messages import Finished, Progress, RankProgress
from flodl_wire.join_messages import (
    Bye,
    RankExited,
)
from flodl_wire.result import RunResult


def result() -> RunResult:
    return RunResult("20260101-000000-abcd", "cpu_cadence", 2, samples=100)


def trained(*devices: object, **how: Any) -> Driven:
    world = formed(*(devices or ("cpu:1", "cpu:1")), **how)
    world.train()
    assert world.run.phase.value == "training"
    return world


def finish(world: Driven) -> None:
    world.hub(Finished(result()))
    for host in list(world.links):
        assert world.run.world is not None
        for rank in world.run.world.hosts[host].ranks:
            world.says(host, RankExited(rank, 0))
        world.says(host, Bye())
        world.gone(host)
    world.at(world.now + 0.25)


def end_children(world: Driven) -> None:
    world.do(ev.HubEnded("exit 0"))
    world.do(ev.FanoutEnded("exit 0"))


def failed(world: Driven) -> str:
    """The run has failed; the first cause as people read it."""
    assert world.run.phase.value == "failed", world.run.phase
    assert world.run.cause is not None
    return world.run.cause.cause().what


def test_the_snapshot_tells_the_truth_and_no_secret() -> None:
    import msgspec

    from flodl_window.snapshot import snapshot

    world = Driven(cluster("cpu:2", "cpu:1"))
    world.at(10)
    world.hello(hello("node-b", 1, libtorch="cpu"))
    state = snapshot(world.run, world.now)
    assert (state.phase, state.joined_ranks, state.min_rank_start, state.target_ranks) == ("waiting", 1, 3, 3)
    assert (state.window_remaining_secs, state.cap_remaining_secs) == (290, 590)
    assert state.members[0].host == "node-b" and state.members[0].joined_at_secs == 10
    world.hello(hello("node-a", 2))
    world.train()
    world.hub(Progress(0, 5, 10, 100, 50.0, ranks=[RankProgress(1, 1.0, 1, stalled=True)]))
    state = snapshot(world.run, world.now)
    assert state.window_remaining_secs is None and [rank.status for rank in state.ranks] == [
        "training",
        "stalled",
        "training",
    ]
    world.says("node-b", RankExited(2, 3))
    state = snapshot(world.run, world.now)
    assert state.phase == "failed" and state.cause is not None and state.cause.rank == 2
    assert world.run.charter.salt_hex not in msgspec.json.encode(state).decode()


def test_a_wrong_step_is_refused_loudly() -> None:
    from flodl_window.phases import Step

    run: Run = formed("cpu:2").run
    with pytest.raises(Refused):
        run._move(Step.QUORUM_HELD, "no")

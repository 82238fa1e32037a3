"""The run as state.json shows it."""

from __future__ import annotations

import pytest
from window_worlds import Driven, cluster, formed, hello

from flodl_window.run import Run
from flodl_wire.faults import Refused
from flodl_wire.hub_messages import Progress, RankProgress
from flodl_wire.join_messages import (
    RankExited,
)


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
    world.hub(Progress(0, 5, 10, 100, 50.0, ranks=[RankProgress(0, 0.0, 0, first_batch_s=42.4)]))
    life = snapshot(world.run, world.now).ranks[0]
    assert (life.status, life.why) == ("training", "still in its first batch (42 s)"), "it may compile for minutes"
    world.hub(Progress(0, 5, 10, 100, 50.0, ranks=[RankProgress(0, 1.0, 1)]))
    assert snapshot(world.run, world.now).ranks[0].why == ""
    world.says("node-b", RankExited(2, 3))
    state = snapshot(world.run, world.now)
    assert state.phase == "failed" and state.cause is not None and state.cause.rank == 2
    assert world.run.charter.salt_hex not in msgspec.json.encode(state).decode()


def test_a_wrong_step_is_refused_loudly() -> None:
    from flodl_window.phases import Step

    run: Run = formed("cpu:2").run
    with pytest.raises(Refused):
        run._move(Step.QUORUM_HELD, "no")

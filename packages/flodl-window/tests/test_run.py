"""Whatever is reported in whatever order: the machine never breaks, keeps to its table, and concludes exactly once."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from window_worlds import Driven, cluster, hello

from flodl_window import events as ev
from flodl_window.phases import TABLE, Phase, To
from flodl_window.snapshot import snapshot
from flodl_wire.hub_messages import (
    EpochDone,
    Finished,
    HubFailed,
    Notice,
    Progress,
    RankIn,
    RankProgress,
    Ready,
    RelayIn,
    TrainingBegan,
)
from flodl_wire.join_messages import Bye, HostFault, RankExited, RelayExited, Step
from flodl_wire.result import RunResult
from flodl_wire.specs import FanoutEvent

HOSTS = ("node-a", "node-b", "stranger")
links = st.integers(1, 4)
hosts = st.sampled_from(HOSTS)
ranks = st.integers(0, 3)
codes = st.sampled_from([None, 0, 1, 3])
signals = st.sampled_from([None, 9, 15])

up = st.one_of(
    st.builds(RankExited, ranks, codes, signals, ordered=st.booleans()),
    st.builds(RelayExited, codes, signals),
    st.builds(HostFault, st.sampled_from(["relay-died", "stdin-closed", "no-command"]), st.just("what")),
    st.builds(Bye, st.sampled_from(["", "why"])),
    st.builds(Step, st.just("rank started"), ranks),
)
hub = st.one_of(
    st.just(Ready("/x")),
    st.builds(RelayIn, hosts),
    st.builds(RankIn, ranks),
    st.just(TrainingBegan("training")),
    st.just(Progress(0, 1, 1, 2, 1.0, ranks=[RankProgress(7, 1.0, 1), RankProgress(0, 1.0, 1, True)])),
    st.just(EpochDone(0, "epoch")),
    st.just(Notice("notice")),
    st.just(Finished(RunResult("r", "cpu_sync", 2))),
    st.builds(
        HubFailed, st.sampled_from(["rank-failed", "below-tolerance", "x"]), st.just("w"), rank=st.none() | ranks
    ),
)
events = st.one_of(
    st.builds(ev.HelloReceived, links, st.builds(hello, hosts, st.integers(0, 2)), st.just("10.0.0.1")),
    st.builds(ev.LinkMessage, links, up),
    st.builds(ev.LinkClosed, links),
    st.builds(ev.HubReported, hub),
    st.builds(ev.HubEnded, st.sampled_from(["exit 0", "exit 1"])),
    st.builds(
        ev.FanoutReported,
        st.builds(FanoutEvent, st.sampled_from(["started", "exited", "line"]), hosts, codes, st.just("text")),
    ),
    st.builds(ev.FanoutEnded, st.sampled_from(["exit 0", "exit 1"])),
    st.builds(ev.StartAsked, st.booleans()),
    st.builds(ev.Interrupted, st.just("SIGINT")),
    st.just(ev.Ticked()),
    st.floats(0.1, 400.0),
)
WAYS = {(phase, cell.phase) for phase, row in TABLE.items() for cell in row.values() if isinstance(cell, To)}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(events, max_size=40),
    st.sampled_from(["cpu_cadence", "torch"]),
    st.sampled_from([{}, {"start": "manual"}, {"start": "hybrid"}, {"min_rank_start": 2}]),
)
def test_nothing_that_is_reported_breaks_the_run(story: list[Any], mode: str, join: dict[str, Any]) -> None:
    world = Driven(cluster("cpu:1", "cpu:2", **join), ready=False, mode=mode)
    phase = world.run.phase
    used: set[int] = set()
    for event in story:
        if isinstance(event, float):
            world.now += event
            event = ev.Ticked()
        if isinstance(event, ev.HelloReceived):  # the shell never reuses a link's number
            if event.link in used:
                continue
            used.add(event.link)
        world.do(event)
        if world.run.phase is not phase:
            assert (phase, world.run.phase) in WAYS or (phase, Phase.FORMING) in WAYS or phase is Phase.WAITING
            phase = world.run.phase
        snapshot(world.run, world.now)
        assert world.run.why or world.run.phase is Phase.WAITING
    world.do(ev.Interrupted("SIGINT"))
    for _ in range(60):
        world.now += 0.25
        world.do(ev.Ticked())
    assert world.run.phase.terminal and world.concluded is not None
    assert (world.run.phase is Phase.DONE) == (world.run.exit_code == 0)

"""state.json: keys that users' scripts read."""

from __future__ import annotations

import msgspec

from flodl_wire import state
from flodl_wire.state import Member, RankState, State

PROMISED = [
    "run",
    "phase",
    "why",
    "mode",
    "joined_ranks",
    "joined_hosts",
    "min_rank_start",
    "target_ranks",
    "window_remaining_secs",
    "cap_remaining_secs",
    "start_mode",
    "start_armed",
    "members",
    "ranks",
    "refused",
    "progress",
    "degraded",
    "cause",
    "dashboard_port",
    "instance",
    "v",
]


def whole() -> State:
    return State(
        run="20260301-101500-3f2a",
        phase="waiting",
        why="1 of 2 ranks are in, 1 more needed",
        mode="cpu_cadence",
        joined_ranks=1,
        joined_hosts=1,
        min_rank_start=2,
        target_ranks=None,
        window_remaining_secs=12.5,
        cap_remaining_secs=312.5,
        start_mode="auto",
        start_armed=False,
        members=[Member("node-a", [0], ["cuda:0"], ["NVIDIA H200 (139GB, sm90)"], "cu128", 0.4, "ssh", "10.0.0.2")],
        ranks=[RankState(0, "node-a", "cuda:0", "starting")],
    )


def test_every_promised_key_is_always_there_null_when_unset() -> None:
    text = msgspec.json.decode(msgspec.json.encode(whole()))
    assert set(PROMISED) <= set(text)
    assert text["target_ranks"] is None and text["dashboard_port"] is None
    assert set(text["members"][0]) >= {"host", "ranks", "local_devices", "gpus", "libtorch", "joined_at_secs"}
    assert text["v"] == state.VERSION == 1


def test_a_reader_of_today_takes_the_state_of_tomorrow() -> None:
    text = msgspec.json.decode(msgspec.json.encode(whole()))
    text["weather"] = {"rain": True}
    text["members"][0]["shoe_size"] = 44
    assert msgspec.convert(text, State) == whole()


def test_phases_are_the_six_words() -> None:
    assert state.PHASES == ("waiting", "staging", "forming", "training", "done", "failed")

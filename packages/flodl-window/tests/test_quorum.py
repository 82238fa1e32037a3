"""The window examples of the reference's section 12 and the evaluation order of its section 2.6."""

from __future__ import annotations

from typing import Any

import pytest
from window_worlds import Driven, cluster, hello

from flodl_window import events as ev
from flodl_window.phases import Phase


def walk_in_window(**join: Any) -> Driven:
    return Driven(cluster(discovery=True, token="a" * 32, **join), fanout=False)


def phase(driven: Driven) -> str:
    return driven.run.phase.value


def test_quorum_reached_inside_the_window_does_not_close_it() -> None:
    window = walk_in_window(min_rank_start=2)
    window.at(10)
    window.hello(hello("a"))
    assert phase(window) == "waiting"
    window.at(20)
    window.hello(hello("b"))
    window.at(299.75)
    assert phase(window) == "waiting"
    window.at(300)
    assert phase(window) == "forming"


def test_quorum_reached_after_the_window_closes_it_at_once() -> None:
    window = walk_in_window(min_rank_start=2)
    window.at(10)
    window.hello(hello("a"))
    window.at(450)
    assert phase(window) == "waiting"
    window.hello(hello("b"))
    assert phase(window) == "forming"


def test_the_cap_fails_a_window_below_quorum_with_numbers() -> None:
    window = walk_in_window(min_rank_start=2)
    window.hello(hello("a"))
    window.at(599.75)
    assert phase(window) == "waiting"
    window.at(600)
    assert phase(window) == "failed"
    assert "have 1 rank, need 1 more" in window.run.why and window.run.cause is not None and window.run.cause.fix
    assert window.concluded is None, "the member is still being ended"


def test_manual_holds_at_quorum_and_forms_when_it_is_started() -> None:
    window = walk_in_window(min_rank_start=2, start="manual")
    window.at(10)
    window.hello(hello("a"))
    window.at(20)
    window.hello(hello("b"))
    assert phase(window) == "staging"
    window.at(400)
    assert phase(window) == "staging"
    window.hello(hello("c"))
    assert window.do(ev.StartAsked(trusted=True))[-1] == ev.AnswerStart(
        200, {"armed": True, "joined_ranks": 3, "min_rank_start": 2}
    )
    assert phase(window) == "forming"


def test_manual_that_is_never_started_fails_at_the_cap() -> None:
    window = walk_in_window(min_rank_start=2, start="manual")
    window.hello(hello("a", 2))
    window.at(600)
    assert phase(window) == "failed" and "was not fired" in window.run.why


def test_hybrid_holds_and_still_closes_by_the_clock() -> None:
    window = walk_in_window(min_rank_start=2, start="hybrid")
    window.hello(hello("a", 2))
    assert phase(window) == "staging"
    window.at(300)
    assert phase(window) == "forming"


def test_hybrid_and_auto_close_at_the_target() -> None:
    for start in ("hybrid", "auto"):
        window = walk_in_window(min_rank_start=2, target_ranks=3, start=start)
        window.hello(hello("a", 2))
        window.hello(hello("b", 1))
        assert phase(window) == "forming"


def test_a_member_that_leaves_the_hold_takes_it_back_to_waiting() -> None:
    window = walk_in_window(min_rank_start=2, start="manual")
    window.hello(hello("a"))
    window.hello(hello("b"))
    window.gone("b")
    assert phase(window) == "waiting"
    refused = window.do(ev.StartAsked(trusted=True))[-1]
    assert isinstance(refused, ev.AnswerStart) and refused.status == 409 and "1/2" in str(refused.body)
    window.hello(hello("c"))
    assert phase(window) == "staging"
    window.do(ev.StartAsked(trusted=True))
    assert phase(window) == "forming"


def test_a_fan_out_forms_the_instant_its_last_host_is_in() -> None:
    world = Driven(cluster("cpu:2", "cpu:1"))
    world.hello(hello("node-b", 1))
    assert phase(world) == "waiting" and "need 2 more (waiting for node-a)" in world.run.why
    world.hello(hello("node-a", 2))
    assert phase(world) == "forming"


def test_a_roster_of_unknown_size_waits_for_its_last_host() -> None:
    world = Driven(cluster("all", "all"))
    world.hello(hello("node-a", 4, "cuda"))
    assert phase(world) == "waiting"
    world.hello(hello("node-b", 2, "cuda"))
    assert phase(world) == "forming"
    assert world.run.world is not None and len(world.run.world.ranks) == 6


def test_a_roster_that_turns_out_to_be_one_device_is_no_world() -> None:
    world = Driven(cluster("all"))
    world.hello(hello("node-a", 1, "cuda"))
    assert phase(world) == "failed" and "a world of one" in world.run.why


def test_the_world_waits_for_its_coordinator() -> None:
    world = Driven(cluster("cpu:2"), ready=False)
    world.hello(hello("node-a", 2))
    assert phase(world) == "waiting" and "coordinator" in world.run.why
    from flodl_wire.hub_messages import Ready

    world.hub(Ready("/x"))
    assert phase(world) == "forming"


@pytest.mark.parametrize(
    ("join", "trusted", "status", "words"),
    [
        ({}, True, 409, "no switch"),
        ({"start": "manual"}, False, 403, "token"),
        ({"start": "manual"}, True, 409, "0/2"),
    ],
)
def test_a_start_that_cannot_be_is_refused_by_name_and_never_queued(
    join: dict[str, Any], trusted: bool, status: int, words: str
) -> None:
    window = walk_in_window(min_rank_start=2, **join)
    answer = window.do(ev.StartAsked(trusted))[-1]
    assert isinstance(answer, ev.AnswerStart) and answer.status == status and words in str(answer.body)
    window.hello(hello("a", 2))
    assert window.run.phase in (Phase.WAITING, Phase.STAGING)


def test_a_start_after_the_window_names_the_phase() -> None:
    window = walk_in_window(min_rank_start=2, start="hybrid", target_ranks=2)
    window.hello(hello("a", 2))
    answer = window.do(ev.StartAsked(True))[-1]
    assert answer == ev.AnswerStart(409, {"error": "the window is closed: the run is forming"})

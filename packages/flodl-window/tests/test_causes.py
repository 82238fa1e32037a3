"""First causes out of what the window heard."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flodl_window.aftermath import advice
from flodl_window.aftermath.causes import find
from flodl_window.aftermath.signals import in_words
from flodl_wire.join_messages import RELAY_GONE

Row = dict[str, Any]
RESET = ["Traceback (most recent call last):", "RuntimeError: [gloo] Connection closed by peer [10.0.0.2]:4711"]


def exited(t: float, host: str, rank: int, **more: Any) -> Row:
    return {"t": t, "kind": "rank_exited", "host": host, "rank": rank, **more}


def verdict(t: float, what: str, **cause: Any) -> Row:
    given = {"t": t, "surety": "cause", "what": what, **cause}
    return {"t": t, "kind": "verdict", "phase": "failed", "text": what, "cause": given, "weighed": [given]}


def test_the_verdict_holds_and_its_signal_is_told_in_words() -> None:
    rows = [
        exited(5.0, "node-b", 2, signal=9, tail=["step 41"]),
        verdict(5.0, "rank 2 on node-b killed by signal 9 (out of memory?)", host="node-b", rank=2, tail=["step 41"]),
        exited(5.2, "node-a", 0, signal=15, ordered=True),
        {"t": 5.3, "kind": "relay_exited", "host": "node-a", "signal": 15},
    ]
    causes = find(rows, {})
    assert causes.first is not None and (causes.first.host, causes.first.rank) == ("node-b", 2)
    assert "out of memory" in causes.first.meaning and "SIGKILL" in causes.first.meaning
    assert (causes.before, causes.after, causes.note) == ([], [], "")


def test_one_that_complains_of_a_lost_peer_is_an_echo_of_the_one_that_was_lost_though_its_report_came_first() -> None:
    rows = [
        exited(5.0, "node-a", 0, code=1, tail=RESET),
        verdict(5.0, "rank 0 on node-a exit 1", host="node-a", rank=0, tail=RESET),
        exited(5.4, "node-c", 3, code=1, tail=RESET),
        exited(5.9, "node-b", 2, signal=11, tail=["Fatal Python error: Segmentation fault"]),
    ]
    causes = find(rows, {})
    assert causes.first is not None and (causes.first.host, causes.first.rank) == ("node-b", 2)
    assert "native code" in causes.first.meaning and "rank 0 on node-a" in causes.note
    assert [each.rank for each in causes.after] == [0, 3]


def test_one_that_complains_of_a_lost_peer_while_nobody_was_lost_stays_the_cause() -> None:
    rows = [
        exited(5.0, "node-a", 0, code=1, tail=RESET),
        verdict(5.0, "rank 0 on node-a exit 1", host="node-a", rank=0),
    ]
    rows[1]["cause"]["tail"] = RESET
    causes = find(rows, {})
    assert causes.first is not None and causes.first.rank == 0 and not causes.note


def test_what_was_survived_before_stands_before_and_long_ago_is_no_cause() -> None:
    rows = [
        exited(5.0, "node-c", 3, signal=9),
        exited(500.0, "node-a", 0, code=1, tail=RESET),
        verdict(500.0, "rank 0 on node-a exit 1", host="node-a", rank=0, tail=RESET),
    ]
    causes = find(rows, {})
    assert causes.first is not None and causes.first.rank == 0
    assert [each.rank for each in causes.before] == [3]


def test_a_lost_host_is_found_among_what_was_weighed() -> None:
    last = verdict(20.0, "rank 0 on node-a exit 1", host="node-a", rank=0, tail=RESET)
    lost = {"t": 21.0, "surety": "cause", "what": "host node-b lost: no sign of life for 15 s", "host": "node-b"}
    last["weighed"].append(lost)
    causes = find([exited(20.0, "node-a", 0, code=1, tail=RESET), last], {})
    assert causes.first is not None and causes.first.host == "node-b" and causes.first.rank is None


def test_a_link_that_closed_is_explained_by_the_end_of_its_agent_though_that_was_told_later() -> None:
    rows = [
        verdict(6.0, "host node-b lost: its link closed without a goodbye", host="node-b"),
        {"t": 6.4, "kind": "agent_exited", "host": "node-a", "code": 1},
        {"t": 6.5, "kind": "agent_exited", "host": "node-b", "code": -9},
    ]
    first = find(rows, {}).first
    assert first is not None and "its agent ended (killed by signal 9" in first.what and "SIGKILL" in first.meaning


def test_without_events_the_state_tells() -> None:
    state = {"cause": {"what": "ValueError: no", "host": "here", "rank": 0, "tail": ["a", "b"]}}
    causes = find([], state)
    assert causes.first is not None and (causes.first.what, causes.first.tail) == ("ValueError: no", ["a", "b"])
    assert find([], {}).first is None


KINDS = ["opened", "hello", "closed", "rank_exited", "relay_exited", "fault", "bye", "agent_exited", "hub_failed"]
FIELDS = ["t", "host", "rank", "code", "signal", "tail", "what", "why", "cause", "weighed", "ordered"]
ANY = st.one_of(st.none(), st.integers(-3, 300), st.text(max_size=5), st.lists(st.text(max_size=5), max_size=2))
ROW = st.fixed_dictionaries(
    {"kind": st.sampled_from([*KINDS, "hub_ended", "verdict", "interrupted", "x"])}, optional=dict.fromkeys(FIELDS, ANY)
)
ROWS = st.lists(ROW, max_size=8)


@given(ROWS)
def test_no_row_whatever_is_in_it_ends_in_a_traceback(rows: list[Row]) -> None:
    causes = find(rows, {"cause": 3})
    if causes.first is not None:
        advice.what_to_try(causes.first, [])


def test_signals_and_codes_in_words() -> None:
    assert in_words(7).startswith("SIGBUS (7): ") and "/dev/shm" in in_words(7)
    assert in_words(9).startswith("SIGKILL") and in_words(200) == "signal 200"
    rows = [exited(1.0, "a", 0, code=137), verdict(1.0, "rank 0 on a exit 137", host="a", rank=0)]
    first = find(rows, {}).first
    assert first is not None and "128 + 9" in first.meaning and "SIGKILL" in first.meaning


def test_what_helps_is_named_by_the_traces_that_were_left() -> None:
    rows = [exited(1.0, "a", 0, signal=7), verdict(1.0, "rank 0 on a killed by signal 7 (SIGBUS)", host="a", rank=0)]
    first = find(rows, {}).first
    assert first is not None
    assert any("/dev/shm" in tip for tip in advice.what_to_try(first, []))
    out_of_memory = advice.what_to_try(first, ["torch.OutOfMemoryError: CUDA out of memory."])
    assert "batch_size" in out_of_memory[0]


def test_a_rank_that_stood_still_behind_its_training_was_ended_by_us() -> None:
    rows = [exited(20.0, "node-b", 2, signal=9, stood_still_s=15.2), {"t": 21.0, "kind": "verdict", "phase": "done"}]
    causes = find(rows, {})
    assert causes.first is None
    (found,) = causes.before
    assert found.what == "rank 2 on node-b never exited: stopped by a signal for 15 s, then killed"
    assert "SIGSTOP" in found.meaning and "out of memory" not in found.meaning


def test_so_was_a_relay_and_it_comes_before_the_ranks_that_it_had_not_told() -> None:
    relay = {"t": 20.0, "kind": "relay_exited", "host": "node-b", "signal": 9, "stood_still_s": 15.2}
    tail = [f"cannot train on: {RELAY_GONE}"]
    rank = exited(20.1, "node-b", 2, code=1, tail=tail)
    judged = verdict(20.1, "rank 2 on node-b exit 1", host="node-b", rank=2, tail=tail)
    first = find([relay, rank, judged], {}).first
    assert first is not None and first.what == "relay on node-b never exited: stopped by a signal for 15 s, then killed"
    assert "SIGSTOP" in first.meaning


def test_a_rank_that_stall_timeout_ended_was_ended_by_us_and_not_for_want_of_memory() -> None:
    rows = [
        {"t": 9.0, "kind": "expelled", "rank": 2, "seconds": 30.2},
        exited(9.1, "node-b", 2, signal=9),
        {"t": 21.0, "kind": "verdict", "phase": "done"},
    ]
    (found,) = find(rows, {}).before
    assert found.what == "rank 2 on node-b stood still for 30 s and was ended (stall_timeout)"
    assert "stall_timeout" in found.meaning and "out of memory" not in found.meaning

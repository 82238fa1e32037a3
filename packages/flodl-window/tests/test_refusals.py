from __future__ import annotations

from window_worlds import Driven, cluster, hello

from flodl_window import events as ev
from flodl_window.refusals import KEPT, MOST, STRANGERS_KEPT, Refusals
from flodl_window.snapshot import snapshot
from flodl_wire.faults import Refused
from flodl_wire.join_messages import Abort


def fault(code: str = "model-differs") -> Refused:
    return Refused(code, "cannot admit x", "its model differs", "bring it up to date")


def test_each_refusal_says_who_when_why_and_what_mends_it() -> None:
    book = Refusals()
    book.note("a", "10.0.0.9", fault(), 12.3456)
    assert book.listed() == [
        {
            "host": "a",
            "address": "10.0.0.9",
            "code": "model-differs",
            "what": "cannot admit x",
            "why": "its model differs",
            "fix": "bring it up to date",
            "at_secs": 12.346,
            "times": 1,
        }
    ]


def test_a_fleet_that_dials_again_and_again_counts_once_a_host() -> None:
    book = Refusals()
    for _ in range(1000):
        for host in ("a", "b", "c"):
            book.note(host, "10.0.0.9", fault(), 1.0)
    assert book.count == 3 and book.siege(1.0) is None
    assert [entry["times"] for entry in book.listed()] == [1000] * 3


def test_another_reason_counts_anew_and_memory_stays_bounded() -> None:
    book = Refusals()
    for at in range(MOST):
        book.note(f"h{at}", "10.0.0.9", fault(), at)
        book.note_stranger(f"10.1.{at // 256}.{at % 256}", fault("wrong-key"), at)
    assert book.count == MOST and book.siege(9e9) is None
    book.note("h0", "10.0.0.9", fault("run-differs"), 9e9)
    crowd = book.siege(9e9)
    assert crowd is not None and "most often model-differs (1024)" in crowd.why and crowd.fix
    assert len(book.listed()) == KEPT + STRANGERS_KEPT
    for at in range(MOST):
        book.note(f"more{at}", "10.0.0.9", fault(), at)
    assert book.count == MOST + 1


def test_who_is_in_now_is_no_longer_listed() -> None:
    book = Refusals()
    book.note("a", "10.0.0.9", fault(), 1.0)
    book.note_stranger("10.0.0.9", fault("wrong-key"), 1.0)
    book.note_stranger("10.0.0.8", fault("wrong-key"), 1.0)
    book.forgive("a", "10.0.0.9")
    assert [entry["address"] for entry in book.listed()] == ["10.0.0.8"] and book.last_of("a") is None


def test_more_than_1024_different_refusals_fail_the_window() -> None:
    world = Driven(cluster("cpu:1", "cpu:1"))
    world.hello(hello("node-a"))
    for at in range(MOST + 1):
        assert world.run.phase.value == "waiting", at
        world.do(ev.HelloReceived(1000 + at, hello(f"stranger{at}"), "10.0.0.66"))
        world.do(ev.LinkClosed(1000 + at))
    assert world.run.phase.value == "failed"
    assert "too many hellos were refused: 1025 different refusals, most often unknown-host" in world.run.why
    assert len(world.sent(Abort)) == 1, "the member is told"


def test_strangers_and_late_comers_fail_nothing() -> None:
    world = Driven(cluster("cpu:1", "cpu:1"))
    for at in range(MOST + 9):
        world.do(ev.StrangerRefused(f"10.1.{at // 256}.{at % 256}", fault("wrong-key")))
    assert world.run.phase.value == "waiting"
    world.hello(hello("node-a"))
    world.hello(hello("node-b"))
    for at in range(MOST + 9):
        world.do(ev.HelloReceived(1000 + at, hello(f"late{at}"), "10.0.0.66"))
    assert world.run.phase.value == "forming"
    assert len(snapshot(world.run, world.now).refused) == KEPT + STRANGERS_KEPT


def test_a_host_that_comes_again_and_again_is_worth_a_line_now_and_then() -> None:
    world = Driven(cluster("cpu:1", "cpu:1"))
    for at in range(250):
        world.do(ev.HelloReceived(1000 + at, hello("stranger"), "10.0.0.66"))
    lines = [line for line in world.said if "stranger" in line]
    assert len(lines) == 3 and "100 times by now" in lines[-1]

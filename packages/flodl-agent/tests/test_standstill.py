"""Which ranks stand still behind their training, told by what the kernel says of their sessions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flodl_agent.descent import Process
from flodl_agent.standstill import Standstill


def process(pid: int, *, stopped: bool = False, traced: bool = False, spent: int = 40) -> Process:
    return Process(pid, 1, 10, False, stopped, traced, spent, 0)


def judged(session: Callable[[int], list[Process]], seconds: int = 100) -> float:
    """What is said of it within so long, where 15 s are too many."""
    standstill = Standstill(15.0, 0.0)
    return next((said for at in range(0, seconds, 3) if (said := standstill.too_long(session(at), float(at)))), 0.0)


def test_a_rank_that_is_stopped_is_given_up_after_its_time() -> None:
    assert judged(lambda at: [process(10, stopped=True)]) == 18.0
    assert judged(lambda at: [process(10, stopped=True)], seconds=15) == 0.0


def test_a_shell_that_waits_for_a_stopped_python_stands_still_too() -> None:
    assert judged(lambda at: [process(10), process(11, stopped=True)]) == 18.0


@pytest.mark.parametrize(
    "session",
    [
        lambda at: [process(10)],  # it sleeps, or waits for a disk
        lambda at: [process(10, spent=at)],
        lambda at: [process(10, spent=at), process(11, stopped=True)],  # what it stopped itself is its own affair
        lambda at: [process(10, stopped=True, spent=at)],  # held down to a share of a processor (cpulimit)
        lambda at: [process(10, stopped=at % 9 < 6)],  # somebody lets it go on in between
        lambda at: [process(10, stopped=True, traced=True)],
        lambda at: [process(10), process(11, stopped=True), process(12, stopped=True, traced=True)],
        lambda at: [],
    ],
)  # fmt: skip
def test_one_that_works_or_waits_or_is_debugged_may_take_as_long_as_it_likes(
    session: Callable[[int], list[Process]],
) -> None:
    assert judged(session, seconds=10_000) == 0.0

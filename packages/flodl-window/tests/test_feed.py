"""What open pages are told, whatever comes when: pages as plain lists."""

from __future__ import annotations

import itertools
import json

from flodl_window.live.feed import Feed


class OpenPage:
    """What it has been told of the state."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def write(self, data: bytes) -> None:
        for event in data.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.split("\n") if ": " in line and line[0] != ":")
            if fields.get("event") == "state":
                self.states.append(json.loads(fields["data"]))

    def unread(self) -> int:
        return 0

    def drop(self) -> None:
        raise AssertionError("it reads")

    def finish(self) -> None:
        raise AssertionError("the run is not over")


def test_after_a_look_every_page_has_the_state_of_that_moment_whatever_came_before() -> None:
    for steps in itertools.product(("a page comes", "the state turns", "a look", "a page goes"), repeat=6):
        state = ["waiting", "staging"]
        feed = Feed("0123456789abcdef", lambda: b"{}", lambda state=state: json.dumps(state[0]).encode())
        pages: list[OpenPage] = []
        for now, step in enumerate([*steps, "a look"]):
            if step == "a page comes":
                pages.append(OpenPage())
                feed.enter(pages[-1], "01234567-0" if now % 2 else "", float(now))
                assert pages[-1].states == state[:1], "at once"
            elif step == "the state turns":
                state.reverse()
            elif step == "a page goes" and pages:
                feed.leave(pages.pop(0))
            elif step == "a look":
                feed.look(float(now), urgent=True)
                assert [page.states[-1] for page in pages] == state[:1] * len(pages), steps


def test_a_state_that_has_not_changed_is_told_once() -> None:
    feed = Feed("0123456789abcdef", lambda: b"{}", lambda: b'"waiting"')
    first, second = OpenPage(), OpenPage()
    feed.enter(first, "", 0.0)
    feed.enter(second, "", 0.0)
    for now in range(1, 9):
        feed.look(float(now), urgent=True)
    assert first.states == second.states == ["waiting"]

"""Who is at the other end of a link, and whether anything is still heard of them."""

from __future__ import annotations

from flodl_window.links import CLOCK_JUMP, Links


def looked_at(links: Links, until: float, since: float = 0.0, heard: int | None = None) -> list[int]:
    """Who is silent for 15 s when it is `until`, looked at four times a second; `heard`: speaks all the while."""
    silent: list[int] = []
    for quarter in range(int(since * 4) + 1, int(until * 4) + 1):
        if heard is not None:
            links.hear(heard, quarter / 4)
        silent = links.silent(15.0, quarter / 4)
    return silent


def two() -> Links:
    links = Links(0.0)
    links.take_in(1, "node-a", 0.0)
    links.take_in(2, "node-b", 0.0)
    return links


def test_who_says_nothing_for_so_long_is_silent_and_who_beats_is_not() -> None:
    assert looked_at(two(), 14.75, heard=2) == []
    links = two()
    assert looked_at(links, 15.0, heard=2) == [1] and links.silent_for(1, 15.0) == 15.0


def test_time_in_which_nobody_looked_is_no_silence() -> None:
    links = two()
    assert looked_at(links, 14.0) == []
    assert links.silent(15.0, 14.0 + CLOCK_JUMP + 100) == []
    assert links.silent_for(1, 14.0 + CLOCK_JUMP + 101) == 1.0


def test_what_is_forgotten_is_nobodys_and_cannot_be_heard_again() -> None:
    links = two()
    assert links.forget(1) == "node-a" and links.forget(1) == ""
    links.hear(1, 3.0)
    assert (links.open, links.hosts, links.host_of(1)) == ([2], ["node-b"], "")
    assert links.silent_for(1, 99.0) == 0.0 and looked_at(links, 20.0) == [2]

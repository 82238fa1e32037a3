"""The back-off: transcripts of attempts and what follows each."""

from __future__ import annotations

from flodl_agent.persist import Again, Attempt, Lines, Persist, Stop

NOBODY = Attempt(1, lasted=30)
RUN = Attempt(0, instance="a", formed=True, lasted=3000)


def pauses(machine: Persist, *attempts: Attempt) -> list[float]:
    decisions = [machine.ended(attempt) for attempt in attempts]
    return [decision.after for decision in decisions if isinstance(decision, Again)]


def test_the_pause_doubles_from_5_to_60_seconds() -> None:
    assert pauses(Persist(persist=True), *[NOBODY] * 7) == [5, 10, 20, 40, 60, 60, 60]


def test_a_run_re_arms_it() -> None:
    assert pauses(Persist(persist=True), NOBODY, NOBODY, NOBODY, RUN, NOBODY, NOBODY) == [5, 10, 20, 5, 10, 20]


def test_a_run_that_failed_re_arms_it_too() -> None:
    failed = Attempt(1, instance="a", formed=True, lasted=3)
    assert pauses(Persist(persist=True), NOBODY, NOBODY, failed, NOBODY) == [5, 10, 5, 10]


def test_an_attempt_of_two_minutes_re_arms_it() -> None:
    held = Attempt(1, instance="a", lasted=120)
    assert pauses(Persist(persist=True), NOBODY, NOBODY, held, NOBODY) == [5, 10, 5, 10]


def test_the_time_out_scale_moves_every_pause() -> None:
    assert pauses(Persist(persist=True, scale=0.1), Attempt(1), Attempt(1)) == [0.5, 1.0]


def test_a_flaw_of_this_box_stops_it_with_2_whether_it_persists_or_not() -> None:
    for persist in (True, False):
        assert Persist(persist=persist).ended(Attempt(1, permanent=True)) == Stop(2)


def test_one_shot_passes_the_agent_s_own_code_through() -> None:
    for code in (0, 1, 3, 130):
        assert Persist(persist=False).ended(Attempt(code)) == Stop(code)


def test_it_remembers_the_window_whose_run_it_has_been_through_and_no_other() -> None:
    machine = Persist(persist=True)
    machine.ended(Attempt(1, instance="held", lasted=10))
    assert machine.finished == ""
    machine.ended(RUN)
    machine.ended(NOBODY)
    assert machine.finished == "a"
    machine.ended(Attempt(0, instance="b", formed=True))
    assert machine.finished == "b"


def test_each_try_is_one_line_and_a_fix_stands_below_when_it_is_a_new_one() -> None:
    machine, lines = Persist(persist=True), Lines()
    refused = Attempt(1, why="cannot reach c: refused", fix="start it")
    said = [lines.after(attempt, machine.ended(attempt)) for attempt in (refused, refused, RUN, refused)]
    assert said == [
        "cannot reach c: refused; dialling again in 5 s\nfix: start it",
        "cannot reach c: refused; dialling again in 10 s",
        "the run is over; dialling again in 5 s",
        "cannot reach c: refused; dialling again in 10 s\nfix: start it",
    ]
    assert Lines().after(refused, Stop(1)) == "cannot reach c: refused\nfix: start it"
    assert Lines().after(RUN, Stop(0)) == "the run is over" and Lines().after(Attempt(0), Stop(0)) == ""

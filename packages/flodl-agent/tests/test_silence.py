"""Who is silent for too long, by whose fault."""

from __future__ import annotations

import pytest

from flodl_agent.silence import PATIENCE, Silence


def silent_for(seconds: float, *, stopped: bool, step: float = 1.0) -> float:
    """What a watcher with a limit of 10 s that looks every `step` says in the end."""
    silence = Silence(10.0, 0.0)
    said = 0.0
    for look in range(1, int(seconds / step) + 1):
        said = silence.too_long(look * step, lambda: stopped)
    return said


@pytest.mark.parametrize(
    ("seconds", "stopped", "expected"),
    [(10, True, 0), (11, True, 11), (11, False, 0), (10 * PATIENCE, False, 0), (10 * PATIENCE + 1, False, 31)],
)
def test_who_stands_still_is_given_up_and_who_may_wait_for_a_processor_has_longer(
    seconds: float, stopped: bool, expected: float
) -> None:
    assert silent_for(seconds, stopped=stopped) == expected


def test_a_word_ends_a_silence() -> None:
    silence = Silence(10.0, 0.0)
    for second in range(100):
        assert not silence.too_long(second, lambda: True)
        if second % 9 == 0:
            silence.broken(second)


def test_time_in_which_the_watcher_itself_stood_still_hardly_counts() -> None:
    silence = Silence(10.0, 0.0)
    assert not silence.too_long(1.0, lambda: True)
    assert not silence.too_long(3600.0, lambda: True)
    assert not silence.too_long(3600.1, lambda: True)
    silence.broken(3600.2)
    assert not silence.too_long(3605.0, lambda: True)


def test_a_watcher_that_gets_a_processor_only_now_and_then_waits_longer() -> None:
    assert silent_for(12, stopped=True, step=6.0) == 0
    assert silent_for(18, stopped=True, step=6.0) == 12

"""After the verdict: who is told to end, hurried and killed, and when."""

from __future__ import annotations

import pytest

from flodl_window import events as ev
from flodl_window.limits import Limits, scaled
from flodl_window.winding import WindingDown
from flodl_wire import environ


def test_an_agent_that_is_stopped_ends_by_its_fan_out_which_lives_until_it_has_killed_it() -> None:
    winding = WindingDown(Limits(), fanout_alive=True)
    winding.hub_alive = False
    assert winding.go_on(0.0, [], 0) == [ev.EndFanout()]
    assert winding.go_on(7.9, [], 0) == []
    assert winding.go_on(8.0, [], 0) == [ev.HurryFanout()]
    assert winding.go_on(8.9, [], 0) == []
    assert winding.go_on(9.0, [], 0) == [ev.KillChildren(), ev.Publish(), ev.Conclude(0)]


def test_a_fan_out_that_has_ended_is_not_hurried() -> None:
    winding = WindingDown(Limits(), fanout_alive=False)
    assert winding.go_on(8.0, [], 0) == []


@pytest.mark.parametrize("scale", ["0.1", "1", "10"])
def test_it_is_told_then_hurried_and_then_has_time_to_kill(monkeypatch: pytest.MonkeyPatch, scale: str) -> None:
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, scale)
    limits = scaled()
    assert limits.kill_grace < limits.fanout_end <= limits.hurry <= limits.give_up - 1 <= 8

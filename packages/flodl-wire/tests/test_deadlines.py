"""One scale moves every deadline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import deadlines, environ
from flodl_wire.faults import Refused


@pytest.mark.parametrize("text", ["0.09", "0", "-1", "nan", "inf", "x", "", "1e999"])
def test_a_bad_scale_is_refused_by_name(text: str) -> None:
    with pytest.raises(Refused) as caught:
        deadlines.parse_scale(text)
    assert str(caught.value) == f"cannot use FLODL_NET_TIMEOUT_SCALE={text!r}: it must be a finite number, 0.1 or more"
    assert caught.value.fix == "unset it, or set e.g. FLODL_NET_TIMEOUT_SCALE=2 on a slow network"


def test_an_unset_scale_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environ.NET_TIMEOUT_SCALE, raising=False)
    assert deadlines.scale() == 1.0
    assert deadlines.deadline(15.0) == 15.0
    assert deadlines.beat() == 1.0


@pytest.mark.parametrize(("scale", "silence", "beat"), [("0.1", 2.0, 0.1), ("0.5", 8.0, 0.5), ("2", 30.0, 1.0)])
def test_deadlines_round_up_to_whole_seconds_and_beats_never_slow_down(
    monkeypatch: pytest.MonkeyPatch, scale: str, silence: float, beat: float
) -> None:
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, scale)
    assert deadlines.deadline(deadlines.SILENCE) == silence
    assert deadlines.beat() == pytest.approx(beat)


@given(st.floats(0.1, 100))
def test_silence_is_always_several_beats_long(scale: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(environ.NET_TIMEOUT_SCALE, repr(scale))
        for silence in (deadlines.SILENCE, deadlines.KEEPER_SILENCE):
            assert deadlines.deadline(silence) >= 5 * deadlines.beat()

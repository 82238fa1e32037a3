"""Progress of a run alone: redrawn in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import pytest

from flodl_planes.rank import bar
from flodl_planes.rank.bar import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(bar.time, "monotonic", lambda: now[0])
    return now


def test_on_a_terminal_the_bar_is_redrawn_and_a_line_takes_its_place(clock: list[float]) -> None:
    out = Terminal()
    shown = Bar(out)
    shown.show(0, 3, 20, 40, 123.4)
    picture = out.getvalue()
    assert picture.startswith("\r\x1b[Kepoch 1/3 ") and picture.count("█") == picture.count("░") > 0
    assert picture.endswith(" 20/40  123/s")
    shown.show(0, 3, 21, 40, 123.4)  # too soon for another picture
    assert out.getvalue() == picture
    clock[0] += 1
    shown.line("epoch 1/3: done")
    assert out.getvalue() == picture + "\r\x1b[Kepoch 1/3: done\n"


def test_the_bar_never_leaves_something_behind(clock: list[float]) -> None:
    out = Terminal()
    shown = Bar(out)
    shown.show(0, 1, 1, 2, 1.0)
    shown.close()
    assert out.getvalue().endswith("\r\x1b[K")


def test_a_narrow_terminal_gets_a_short_bar(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = Terminal()
    Bar(out).show(0, 1, 0, 40, 1.0)
    assert out.getvalue().count("░") == 4


def test_elsewhere_a_long_epoch_gets_a_line_now_and_then(clock: list[float]) -> None:
    out = io.StringIO()
    shown = Bar(out)
    shown.line("begins")
    for _ in range(10):
        clock[0] += 5
        shown.show(1, 3, 10, 40, 9.9)
    assert out.getvalue() == "begins\nepoch 2/3: 10/40 samples, 10/s\n"

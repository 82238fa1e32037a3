from __future__ import annotations

import io
import os
import threading

import pytest

from flodl_window import console
from flodl_window.console import Console, for_terminal
from flodl_window.narration import Narration, bar, plain
from flodl_wire.hub_messages import Progress, RankProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


PROGRESS = Progress(
    1, 5, 61, 100, 1520.4, 0.2131, balance=0.9, sync_share=0.041, anchor=1, anchor_host="node-b",
    ranks=[RankProgress(0, 1100, 9), RankProgress(1, 420, 3, stalled=True)],
)  # fmt: skip


def test_a_terminal_gets_colours_and_nothing_that_moves_it() -> None:
    assert for_terminal("plain é ☃\tx") == "plain é ☃\tx"
    assert for_terminal("\x1b[31mred") == "\x1b[31mred\x1b[0m"
    assert for_terminal("a\x1b[2Jb\x07\x1b]0;title\x07c\rd") == "a\\x1b[2Jb\\x07\\x1b]0;title\\x07cd"


def test_a_pipe_gets_every_line_as_it_came_and_no_bar() -> None:
    out, err = io.StringIO(), io.StringIO()
    shown = Console(out, err)
    shown.bar("never")
    shown.line("out", "\x1b[2Jraw")
    shown.line("err", "words")
    shown.close()
    assert (out.getvalue(), err.getvalue()) == ("\x1b[2Jraw\n", "words\n")


def test_the_bar_stays_under_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    shown = Console(terminal, terminal)
    shown.close()
    for piece in (("bar", "BAR"), ("err", "line"), ("bar", "")):
        shown._write([piece])
    assert terminal.getvalue() == "BAR\r\x1b[Kline\nBAR\r\x1b[K"


def test_a_reader_that_stands_still_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "BACKLOG", 10)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "w", encoding="utf-8") as pipe:
        err = io.StringIO()
        shown = Console(pipe, err)
        for _ in range(200):
            shown.line("out", "x" * 10_000, droppable=True)
        shown.line("out", "our own last line")
        assert shown._left_out > 100
        shown.close(0.2)
        assert shown.stuck
        text = b""
        while not text.endswith(b"our own last line\n"):
            text += reader.read1()
        shown._thread.join(5)
        assert not shown.stuck and "lines left out here, the log files have them" in err.getvalue()


def test_a_reader_that_went_away_stops_nobody() -> None:
    read, write = os.pipe()
    os.close(read)
    err = io.StringIO()
    pipe = os.fdopen(write, "w", encoding="utf-8")
    shown = Console(pipe, err)
    shown.line("out", "gone")
    shown.line("err", "here")
    shown.close()
    assert err.getvalue() == "here\n"
    try:
        pipe.close()
    except OSError:
        pass


def test_our_own_lines_escape_what_comes_from_afar() -> None:
    err = io.StringIO()
    told = Narration(Console(io.StringIO(), err))
    told.say("host \x1b]0;evil\x07 is in")
    told.output("node-a:0", "err", ["line"])
    told.close()
    assert err.getvalue() == "flodl: host \\x1b]0;evil\\x07 is in\n[node-a:0] line\n"


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal() -> None:
    err = io.StringIO()
    told = Narration(Console(io.StringIO(), err))
    for now in (0.1, 5, 9, 11, 12, 30):
        told.progress(PROGRESS, now)
    told.close()
    assert err.getvalue().count("epoch 2/5") == 2


def test_the_figures_fit_the_line() -> None:
    figures = "balance 0.90, sync 0.04, anchor rank 1 (node-b)"
    assert plain(PROGRESS) == f"epoch 2/5, 61 %, 1520 samples/s, loss 0.2131, {figures}, ranks 0: 1100/s 1: stalled"
    first = Progress(0, 5, 0, 100, 0.0, ranks=[RankProgress(0, 0, 0, first_batch_s=31.2)])
    assert plain(first).endswith("ranks 0: first batch, 31 s")
    for width in (20, 60, 100, 200):
        assert len(bar(PROGRESS, width)) < width
    assert "▕" in bar(PROGRESS, 120) and figures in bar(PROGRESS, 160)
    alone = Progress(1, 5, 61, 100, 1520.4, balance=1.0, ranks=[RankProgress(0, 1100, 9)])
    assert "balance" not in plain(alone), "of one rank there is nothing to say"


class Gate(io.StringIO):
    """A reader that stands still until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def write(self, text: str) -> int:
        self.go.wait(10)
        return super().write(text)


def test_a_flood_is_cut_and_our_own_last_line_still_comes() -> None:
    out = Gate()
    shown = Console(out, out)
    for number in range(200_000):
        shown.line("out", f"line {number}", droppable=True)
    shown.line("err", "flodl: done")
    assert shown._put_in <= console.BACKLOG + console.BATCH + 1, "what waits is bounded"
    out.go.set()
    shown.close(20)
    lines = out.getvalue().splitlines()
    assert "flodl: done" in lines and len(lines) <= console.BACKLOG + console.BATCH + 3
    assert any("lines left out here" in line for line in lines)


def test_lines_are_left_out_only_while_too_many_wait() -> None:
    out = io.StringIO()
    shown = Console(out, out)
    for number in range(3 * console.BACKLOG):
        while shown._put_in - shown._taken >= console.BACKLOG - 1:
            shown._thread.join(0.001)
        shown.line("out", f"line {number}", droppable=True)
    shown.close(20)
    assert len(out.getvalue().splitlines()) == 3 * console.BACKLOG

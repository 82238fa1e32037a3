"""What is remembered of a run: bounded however long it lasts, whole for late comers, harmless as text."""

from __future__ import annotations

import itertools
import json
from array import array
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from flodl_window.live import history as lived
from flodl_window.live.history import History
from flodl_window.live.table import Table
from flodl_window.live.tails import LINES, WIDTH, Tails, harmless
from flodl_wire.hub_messages import EpochDone, Progress, RankProgress, Spent, Timeline
from flodl_wire.join_messages import GpuLoad, HostLoad


def a_history() -> History:
    return History("20260301-101500-3f2a", "cpu_cadence", 1_700_000_000.0)


def progress(ranks: int, at: int = 0) -> Progress:
    rates = [RankProgress(rank, 100.0 + rank + at % 7, at) for rank in range(ranks)]
    return Progress(0, 9, at, 1000, 1234.5678901, 0.5, 0.9, 0.03, rounds=1, ranks=rates)


# tables


def test_a_table_keeps_what_it_is_given_until_it_is_full() -> None:
    table = Table(64)
    for at in range(64):
        table.add(float(at), {"a": at / 4})
    assert table.document() == {"t": [float(at) for at in range(64)], "a": [at / 4 for at in range(64)]}


def test_a_full_table_halves_its_detail_and_still_covers_all_of_the_time() -> None:
    table = Table(64)
    for at in range(10_000):
        table.add(float(at), {"a": float(at)})
    made = table.document()
    t, a = made["t"], made["a"]
    assert 32 <= len(t) <= 66 and t[-1] == 9999.0 and t == sorted(t)  # type: ignore[type-var]
    steps = [round(later - earlier) for earlier, later in itertools.pairwise(t[:-1])]  # type: ignore[operator]
    assert set(steps) == {256}, "rows stand for the same time"
    assert all(abs(x - y) < 260 for x, y in zip(t, a, strict=True)), "and hold its mean"  # type: ignore[operator]


def test_a_gap_stays_a_gap_and_a_late_column_starts_with_one() -> None:
    table = Table(64)
    table.add(1.0, {"a": 1.0})
    table.add(2.0, {"a": None, "b": float("inf")})
    table.add(3.0, {"b": 3.0})
    assert table.document() == {"t": [1.0, 2.0, 3.0], "a": [1.0, None, None], "b": [None, None, 3.0]}
    assert (table.last("a"), table.last("b"), table.last("c")) == (None, 3.0, None)
    json.dumps(table.document(), allow_nan=False)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e9, 1e9)), max_size=400), st.integers(32, 60))
def test_a_table_never_outgrows_its_rows_nor_its_columns(readings: list[tuple[int, float]], rows: int) -> None:
    table = Table(rows, columns=3)
    for at, (name, value) in enumerate(readings):
        table.add(float(at), {str(name): value})
        assert len(table) <= rows and len(table.columns) <= 3
        assert all(len(column) == len(table) for column in table.columns.values())
    made = table.document()
    assert {len(column) for column in made.values()} == {len(made["t"])}
    if readings:
        assert made["t"][-1] == len(readings) - 1.0, "the newest reading is always there"


# the whole


def test_sixty_four_ranks_and_ten_thousand_points_stay_within_the_bound() -> None:
    history = a_history()
    history.note_began(1.0)
    names = [f"host-{number}" for number in range(16)]
    load = HostLoad(1.0, 0.5, 1 << 30, 4 << 30, 1e6, 1e6, [GpuLoad(gpu, 0.5, 1 << 30, 2 << 30) for gpu in range(4)])
    for at in range(10_000):
        now = 1.0 + at / 2
        history.note_progress(now, progress(64, at))
        if at % 10 == 0 or at > 9_700:
            history.note_timeline(now, Timeline(now, [Spent(rank, 0.4, 0.05, 0.01, 5, 160) for rank in range(64)]))
            history.note_lines(f"host-{at % 16}:{at % 64}", ["x" * 300] * 60)
            history.note_mark(now, "notice", "y" * 300)
        if at % 40 == 0:
            for name in names:
                history.note_load(now, name, load, dict.fromkeys(range(4), "H200"))
        if at % 50 == 0:
            history.note_epoch(now, EpochDone(at // 50, "", 0.5, eval={"accuracy": 0.9}))
        if at % 100 == 0:
            history.take(now)
    document = msgspec.json.encode(history.document(5001.0))
    assert len(document) < 2 << 20 < lived.MOST_BYTES, len(document)
    kept = [history.totals, history.rates, history.epochs, *history.hosts.values()]
    cells = sum(len(column) for table in kept for column in [table.t, *table.columns.values()])
    assert cells * array("d").itemsize < 2 << 20
    assert len(msgspec.json.encode(history.take(5001.0))) < 256 << 10


def test_a_thousand_ranks_share_the_same_cells() -> None:
    history = a_history()
    for at in range(100):
        history.note_progress(float(at), progress(1000, at))
        history.note_timeline(
            float(at), Timeline(float(at), [Spent(rank, 0.1, 0.1, 0.1, 1, 1) for rank in range(1000)])
        )
    assert sum(map(len, history.rates.columns.values())) <= lived.CELLS
    assert len(msgspec.json.encode(history.document(1.0))) < 4 << 20


def test_the_document_holds_everything_that_was_said() -> None:
    history = a_history()
    history.note_mark(0.0, "waiting", "nobody is in")
    history.note_began(2.0)
    history.note_progress(2.5, progress(2))
    history.note_timeline(2.6, Timeline(0.5, [Spent(0, 0.4, 0.05, 0.01, 5, 160)]))
    history.note_epoch(3.0, EpochDone(0, "epoch 1/9", 0.5, 1.0, 100, eval={"accuracy": 0.97}))
    history.note_load(3.1, "node-a", HostLoad(1_700_000_007.1, 0.25, 1, 4), {})
    history.note_lines("node-a:0", ["one", "two"])
    made = history.document(4.0)
    assert made["totals"]["samples_per_s"] == [1234.57] and made["ranks"] == {
        "t": [2.5],
        "rate": {"0": [100.0], "1": [101.0]},
    }
    assert made["timeline"] == [{"t": 2.5, "dt": 0.5, "rows": [[0, 0.4, 0.05, 0.01, 5, 160]]}]
    assert made["epochs"]["loss"] == [0.5] and made["epochs"]["eval"] == {"accuracy": [0.97]}
    assert made["hosts"]["node-a"]["memory"] == [0.25]
    assert made["hosts"]["node-a"]["facts"]["clock_off_s"] == 4.0, "that box's clock is four seconds ahead"
    assert made["tails"] == {"node-a:0": ["one", "two"]} and made["marks"] == [(0.0, "waiting", "nobody is in")]


def test_news_is_told_once_and_nothing_new_is_nothing() -> None:
    history = a_history()
    assert history.take(0.0) == {}
    history.note_progress(1.0, progress(1))
    history.note_progress(1.4, progress(1))
    history.note_lines("a:0", ["hello"])
    news = history.take(1.5)
    assert news["progress"]["t"] == 1.4 and news["tails"] == {"a:0": ["hello"]} and news["now"] == 1.5
    assert history.take(1.6) == {}


# text of others


def test_text_of_others_is_stripped_of_everything_that_acts() -> None:
    hostile = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;http://evil\x1b\\link \x9b2J a\x00b\x7f \ud800 </script>"
    assert harmless(hostile) == "red  link  a\ufffdb\ufffd \ufffd </script>"
    assert harmless("\u202eabc\u2066") == "\ufffdabc\ufffd", "left open, it would turn what stands behind it"
    assert len(harmless("x" * 100_000)) == WIDTH
    msgspec.json.encode(harmless(hostile))


@given(st.text())
def test_harmless_text_has_no_escape_left(text: str) -> None:
    made = harmless(text)
    assert "\x1b" not in made and not any(ord(char) < 32 and char not in "\t\n" for char in made)


def test_a_flood_of_lines_leaves_its_end() -> None:
    tails = Tails()
    tails.add("a:0", [f"line {number}" for number in range(100_000)])
    tails.add("a:0", ["last"])
    assert tails.document()["a:0"][-2:] == ["line 99999", "last"] and len(tails.document()["a:0"]) == LINES
    assert tails.take()["a:0"][-1] == "last" and tails.take() == {}
    for number in range(5000):
        tails.add(f"h{number}:0", ["x"] * 60)
    assert sum(map(len, tails.document().values())) < 10_000


def test_an_evaluation_with_a_thousand_names_is_cut() -> None:
    history = a_history()
    history.note_epoch(1.0, EpochDone(0, "", eval={f"metric-{number}": 1.0 for number in range(1000)}))
    made: dict[str, Any] = history.document(1.0)["epochs"]["eval"]
    assert len(made) == lived.METRICS

"""Lines out of bytes, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_agent.logs import MAX_LINE, TAIL, LineSplitter, Tail


def split(*chunks: bytes) -> list[str]:
    lines = LineSplitter()
    return [line for chunk in chunks for line in lines.feed(chunk)] + lines.finish()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"no end"], ["no end"]),
        ([b"o", b"ne\ntw", b"o"], ["one", "two"]),
        ([b"\n\nx\n"], ["", "", "x"]),
        ([b"dos\r\nlines\r\n"], ["dos", "lines"]),
        ([b"dos\r", b"\nlines\r", b"\n"], ["dos", "lines"]),
        ([b"\r\n"], [""]),
        ([b"\r", b"\n"], [""]),
        ([b"\r 1%\r 2%", b"\r 3%\n"], [" 1%", " 2%", " 3%"]),
        ([b"gr\xc3", b"\xb6n\n"], ["grön"]),
        ([b"bad \xff byte\n"], ["bad \ufffd byte"]),
        ([], []),
    ],
)
def test_lines_end_where_a_terminal_would_end_them(chunks: list[bytes], lines: list[str]) -> None:
    assert split(*chunks) == lines


def test_a_line_without_end_arrives_in_pieces_and_no_character_is_cut() -> None:
    text = "ö" * (MAX_LINE + 1)
    for chunks in ([text.encode()], [text.encode() + b"\n"], [text[:40000].encode(), text[40000:].encode()]):
        pieces = split(*chunks)
        assert "".join(pieces) == text and len(pieces) == 3
        assert all(len(piece.encode()) <= MAX_LINE for piece in pieces)


def test_a_long_line_is_not_held_until_its_end() -> None:
    lines = LineSplitter()
    assert [len(piece) for piece in lines.feed(b"x" * (3 * MAX_LINE + 5))] == [MAX_LINE] * 3


@given(st.lists(st.binary(max_size=12), max_size=8))
def test_how_the_bytes_are_cut_changes_no_line(chunks: list[bytes]) -> None:
    assert split(*chunks) == split(b"".join(chunks))


def test_the_tail_keeps_the_last_lines_of_both_streams() -> None:
    tail = Tail()
    tail.add([str(number) for number in range(100)])
    tail.add(["x" * 10_000])
    assert len(tail.lines()) == TAIL and tail.lines()[0] == "51" and len(tail.lines()[-1]) == 4096

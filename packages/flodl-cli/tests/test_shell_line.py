"""Words reach the program byte for byte, with a shell in between and without."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_cli.shell_line import argv_of
from flodl_wire.faults import Refused

ECHO = "import os,sys; sys.stdout.buffer.write(b''.join(os.fsencode(a) + b'\\0' for a in sys.argv[1:]))"
NASTY = [
    "",
    " ",
    "a b",
    "$HOME",
    "`id`",
    "$(id)",
    "'",
    '"',
    "\\",
    "a\nb",
    "*",
    "-v",
    "--",
    "--lr",
    "-1",
    "é🙂",
    "@x",
    "#",
    "!",
    ";",
]


def received(line: str, tokens: list[str]) -> list[str]:
    """What a program started by `line` really gets."""
    argv = argv_of(line.replace("ECHO", f"{sys.executable} -S -c"), tokens, "fdl x")
    out = subprocess.run(argv, capture_output=True, check=True).stdout
    return [part.decode() for part in out.split(b"\0")[:-1]]


@pytest.mark.parametrize(
    "line", [f'ECHO "{ECHO}"', f'true && ECHO "{ECHO}"', f'X=1 ECHO "{ECHO}"', f'true\nECHO "{ECHO}" "$@"\n']
)
def test_words_arrive_byte_for_byte(line: str) -> None:
    assert received(line, NASTY) == NASTY


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=6), max_size=4))
def test_any_words_arrive_through_a_shell(tokens: list[str]) -> None:
    assert received(f'true && ECHO "{ECHO}"', tokens) == tokens


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("python train.py", ["python", "train.py", "T"]),
        ("  python  train.py  ", ["python", "train.py", "T"]),
        ("python 'my script.py' --lr=1", ["python", "my script.py", "--lr=1", "T"]),
        ("./a/b", ["./a/b", "T"]),
    ],
)
def test_a_plain_line_needs_no_shell(line: str, argv: list[str]) -> None:
    assert argv_of(line, ["T"], "x") == argv


@pytest.mark.parametrize(
    "line",
    [
        "a | b",
        "a && b",
        "a > f",
        "a $X",
        "a `b`",
        "A=1 b",
        "cd x",
        "a ~/b",
        "a *.py",
        "if a",
        "a 'open",
        "a\nb",
        "! a",
        "[ -e x ]",
    ],
)
def test_what_a_shell_would_interpret_goes_to_one(line: str) -> None:
    assert argv_of(line, [], "x") == ["sh", "-c", line, "x"]


@pytest.mark.parametrize("line", ["a &", "a;", "a # words", "a\n# the end", "cat <<E\nx\nE"])
def test_words_that_would_be_lost_are_refused(line: str) -> None:
    assert argv_of(line, [], "x")[:2] == ["sh", "-c"]
    with pytest.raises(Refused, match="nothing can stand behind"):
        argv_of(line, ["--lr"], "x")

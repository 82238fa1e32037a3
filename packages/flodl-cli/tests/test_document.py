"""Files are read as they were meant, or refused in words; never a traceback, whatever lies in them."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_cli import document
from flodl_wire.faults import Refused


def read(tmp_path: Path, text: str | bytes, name: str = "fdl.yml") -> object:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return document.read(str(path), name).plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("# only words\n", {}),
        ("---\n", {}),
        ("\ufeffa: 1\n", {"a": 1}),
        ("on: x\nno: y\n1: z\nnull: n\n", {"on": "x", "no": "y", "1": "z", "null": "n"}),
        (
            "a: 1:30\nb: 2026-11-29\nc: 1.5\nd: yes\ne: ~\n",
            {"a": "1:30", "b": "2026-11-29", "c": 1.5, "d": True, "e": None},
        ),
        ("devices: 0,1\nipv6: fe80::1\n", {"devices": "0,1", "ipv6": "fe80::1"}),
        ("base: &b {x: 1, y: 2}\nmine: {<<: *b, y: 3}\n", {"base": {"x": 1, "y": 2}, "mine": {"x": 1, "y": 3}}),
        ("a: 'it''s'\nb: \"tab\\t\"\nc: |\n  two\n  lines\n", {"a": "it's", "b": "tab\t", "c": "two\nlines\n"}),
        ("ключ: значение 🙂\n", {"ключ": "значение 🙂"}),
        ("a: []\nb: {}\n", {"a": [], "b": {}}),
    ],
)
def test_what_is_written_is_what_is_read(tmp_path: Path, text: str, value: object) -> None:
    assert read(tmp_path, text) == value


def test_json_is_read_as_json(tmp_path: Path) -> None:
    assert read(tmp_path, '{\n\t"a": [1, {"b": null}], "on": true}', "fdl.json") == {"a": [1, {"b": None}], "on": True}
    assert read(tmp_path, "  ", "fdl.json") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a: \xff\n", "line 1 is not UTF-8"),
        (b"a: b\nc: \x07\n", "does not allow"),
        ("a: [1\n", "did not find"),
        ("a: 'open\n", "quoted scalar"),
        ("a: *nowhere\n", "undefined alias"),
        ("a: !!set {x, y}\n", "plain data"),
        ("a: !secret x\n", "could not determine a constructor"),
        ("a: !!binary aGk=\n", "plain data"),
        ("? [a, b]\n: c\n", "a key must be text"),
        ("a: &a\n  - *a\n", "unfold without end"),
        ("a: &a {<<: *a}\n", "unfold without end"),
        ("a: {<<: 5}\n", "merges blocks"),
        ("a: 2026-99-99\n", "cannot be read"),
        ("a: " + "9" * 5000, "cannot be read"),
        ("a: .nan\n", "no number"),
        ("- a\n", "top level"),
        ("just words\n", "top level"),
        ("a: " + "[" * 3000, ""),
        (
            "\n".join([f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" if i else "a0: &a0 [x]" for i in range(40)]),
            "unfold",
        ),
        ("x" * (2 << 20), "larger than"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(Refused) as caught:
        read(tmp_path, text)
    assert words in caught.value.why
    assert caught.value.fix


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100000, '{"a": 1e999999}', "{'a': 1}"]
)
def test_json_that_cannot_be_meant_is_refused_too(tmp_path: Path, text: str) -> None:
    with contextlib.suppress(Refused):
        value = read(tmp_path, text, "fdl.json")
        pytest.fail(f"read as {value!r}")


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.yml"):
        with pytest.raises(Refused):
            document.read(str(path))


def test_the_line_is_shown_between_its_neighbours(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        read(tmp_path, "a: 1\nb: c: d\ne: 2\nf: 3\n")
    assert caught.value.what == "cannot read fdl.yml:2:5"
    assert caught.value.why.splitlines()[1:] == ["       1 | a: 1", "  >    2 | b: c: d", "       3 | e: 2"]


def test_an_end_that_comes_too_soon_shows_the_last_line(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        read(tmp_path, "a: 1\nb: [\n")
    assert caught.value.what == "cannot read fdl.yml:2"
    assert caught.value.why.splitlines()[-1] == "  >    2 | b: ["


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"#%@`,?\n\t 01.~<\\\x00é"), max_size=40))
def test_no_text_ends_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    for name in ("fuzz.yml", "fuzz.json"):
        with contextlib.suppress(Refused):
            json.dumps(read(folder, text, name), allow_nan=False)

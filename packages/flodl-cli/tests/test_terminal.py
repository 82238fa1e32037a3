"""fdl at a terminal: a question about an example, and a help that fits."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path

import pytest

from flodl_cli.cli_help import wrapped

CODE = "import sys; from flodl_cli.main import main; sys.exit(main(sys.argv[1:]))"


def at_a_terminal(folder: Path, words: list[str], typed: bytes = b"", columns: int = 80) -> tuple[int, str]:
    """The exit code of `fdl WORDS` in a terminal of that width, and all that stood on it; `typed` behind a question."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execv(sys.executable, [sys.executable, "-c", CODE, *words])
    said = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        said += data
        if typed and said.endswith(b"[y/N] "):
            os.write(terminal, typed)
            typed = b""
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("typed", "code", "copied"), [(b"y\n", 0, True), (b"n\n", 127, False), (b"\x04", 127, False), (b"\x03", 130, False)]
)
def test_an_example_is_copied_when_the_user_says_so(tmp_path: Path, typed: bytes, code: int, copied: bool) -> None:
    (tmp_path / "fdl.yml.example").write_text("commands: {a: {run: 'echo ran'}}\n")
    got, said = at_a_terminal(tmp_path, ["a"], typed)
    assert (got, (tmp_path / "fdl.yml").exists()) == (code, copied)
    assert "there is no fdl.yml" in said.replace(str(tmp_path) + "/", "")
    assert said.endswith("ran\n" if copied else "\n")
    assert sorted(os.listdir(tmp_path)) == (["fdl.yml", "fdl.yml.example"] if copied else ["fdl.yml.example"])


def test_the_help_keeps_its_columns_in_a_narrow_terminal(tmp_path: Path) -> None:
    (tmp_path / "fdl.yml").write_text(
        "commands: {train: {run: x, description: 'a very long text " + "word " * 20 + "'}}"
    )
    code, said = at_a_terminal(tmp_path, ["help"], columns=60)
    assert code == 0
    tables = [line for line in said.splitlines() if line.startswith("  ")]
    assert tables and max(map(len, tables)) <= 60
    assert max(map(len, at_a_terminal(tmp_path, ["help"], columns=200)[1].splitlines())) > 100


def test_words_are_never_cut() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("unbreakable", 4) == ["unbreakable"]
    assert wrapped("", 4) == [""]

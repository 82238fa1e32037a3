"""Where a command ends and its arguments begin."""

from __future__ import annotations

import pytest

from flodl_wire.entry_words import split


@pytest.mark.parametrize(
    ("line", "program", "script"),
    [
        ("./train --lr 1", "./train", ""),
        ("train.py --lr 1", "train.py", "train.py"),
        ("python train.py --lr 1", "python train.py", "train.py"),
        ("/opt/v/bin/python3.11 -u -O train.py --lr 1", "/opt/v/bin/python3.11 -u -O train.py", "train.py"),
        ("python -uB -W ignore -Xdev a/train.py --lr 1", "python -uB -W ignore -Xdev a/train.py", "a/train.py"),
        ("python -W error -m my.train --lr 1", "python -W error -m my.train", ""),
        ("python -um my.train --lr 1", "python -um my.train", ""),
        ("python -c pass --lr 1", "python -c pass", ""),
        ("sh -c line name --lr 1", "sh -c line name", ""),
        ("pythonic --lr 1", "pythonic", ""),
    ],
)
def test_a_command_is_cut_behind_its_program(line: str, program: str, script: str) -> None:
    found = split(line.split())
    assert (" ".join(found.program), found.args, found.script) == (program, ["--lr", "1"], script)


@pytest.mark.parametrize("argv", [[], ["python"], ["python", "-"], ["python", "-W"], ["sh", "-c"]])
def test_what_is_cut_short_has_no_script_and_no_arguments_it_did_not_have(argv: list[str]) -> None:
    found = split(argv)
    assert found.script == "" and found.program + found.args == argv

"""The ssh command line: composed purely, then handed to real shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flodl_wire.config import Ssh
from flodl_wire.ssh_argv import enter, find_and_run, ssh_argv

SHELLS = [shell for shell in map(shutil.which, ("sh", "bash", "dash", "zsh", "fish", "tcsh", "ksh")) if shell]


def test_a_user_s_options_come_before_ours_because_the_first_of_a_key_wins() -> None:
    argv = ssh_argv("node-b", Ssh(options=["StrictHostKeyChecking=no"], port=2222), "ann", "true", ["-W", "a:1"])
    assert [argv[index + 1] for index, word in enumerate(argv) if word == "-o"] == [
        "StrictHostKeyChecking=no",
        "ServerAliveInterval=10",
        "ServerAliveCountMax=3",
        "BatchMode=yes",
        "StrictHostKeyChecking=accept-new",
    ]
    assert argv[argv.index("-p") + 1] == "2222"
    assert argv[-7:-1] == ["-l", "ann", "-W", "a:1", "--", "node-b"]


@pytest.mark.parametrize("target", ["eve@10.0.0.2", None])
def test_no_login_name_is_invented(target: str | None) -> None:
    argv = ssh_argv("node-b", Ssh(target=target), "ann" if target else None, "true")
    assert "-l" not in argv and argv[-2] == (target or "node-b")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_finds_the_tool_of_the_project_with_its_environment(tmp_path: Path, shell: str) -> None:
    project = tmp_path / "it's a project"
    tool = project / ".venv/bin/flodl-x"
    tool.parent.mkdir(parents=True)
    tool.write_text('#!/bin/sh\necho "$1 $2 in $PWD: $WORD"; cat\n')
    tool.chmod(0o755)
    script = enter(str(project), {"WORD": "a 'b' $c", "not a name": "x"}) + find_and_run("flodl-x", ["one", "t w"], "")
    argv = ssh_argv("h", None, None, script)
    done = subprocess.run(
        [shell, "-c", argv[-1]], input="the spec", capture_output=True, text=True, check=False,
        env={"HOME": str(tmp_path), "SHELL": shell, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout == f"one t w in {project}: a 'b' $c\nthe spec", done.stderr


def test_a_missing_tool_and_a_missing_folder_say_what_they_are_told_to(tmp_path: Path) -> None:
    script = enter("/no/such/folder", {}, "echo no folder")
    script += find_and_run("flodl-nowhere", [], "echo no tool; exit 127")
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (127, "no folder\nno tool\n")

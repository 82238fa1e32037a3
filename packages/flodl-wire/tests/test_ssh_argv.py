"""The ssh command line: composed purely, then handed to real shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flodl_wire.config import Ssh
from flodl_wire.ssh_argv import enter, find_and_run, quoted_path, ssh_argv

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


@pytest.mark.parametrize(
    ("ssh", "host_user", "login"),
    [
        (None, None, None),
        (None, "ann", "ann"),
        (Ssh(user="bob"), "ann", "bob"),
        (Ssh(target="eve@10.0.0.2"), "ann", None),
    ],
)
def test_the_login_name_is_configured_or_the_controller_s_user_or_nobody_s(
    ssh: Ssh | None, host_user: str | None, login: str | None
) -> None:
    argv = ssh_argv("node-b", ssh, host_user, "true")
    assert (argv[argv.index("-l") + 1] if "-l" in argv else None) == login
    assert argv[-3:-1] == ["--", ssh.target if ssh and ssh.target else "node-b"]


def test_port_and_identity_are_passed() -> None:
    argv = ssh_argv("node-b", Ssh(port=2222, identity_file="/k"), None, "true")
    assert argv[argv.index("-p") + 1] == "2222" and argv[argv.index("-i") + 1] == "/k"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_tool_is_found_in_the_projects_environment_first_then_in_the_users_then_by_the_login_shell(
    shell: str, tmp_path: Path
) -> None:
    project, home = tmp_path / "it's a $project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    (home / ".profile").write_text(f'echo banner; PATH="{home}/bin:$PATH"\n')
    word = 'two  words, it\'s "$HOME" 🙂'
    script = enter(str(project), {"WORD": word, "X; rm -rf /": "1"}) + find_and_run("flodl-x", ["one", "t w"], "")
    argv = ssh_argv("h", None, None, script)
    for folder in (home / "bin", home / ".local/bin", project / ".venv/bin"):  # each found before the one made earlier
        folder.mkdir(parents=True)
        tool = folder / "flodl-x"
        tool.write_text('#!/bin/sh\necho "$0 $1 $2 in $PWD: $WORD"; cat\n')
        tool.chmod(0o755)
        done = subprocess.run(
            [shell, "-c", argv[-1]], input="the spec", capture_output=True, text=True, check=False,
            env={"HOME": str(home), "SHELL": shell, "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.stdout == f"{tool} one t w in {project}: {word}\nthe spec", done.stderr


def test_a_tilde_in_a_path_is_the_home_over_there() -> None:
    assert (quoted_path("~/my proj"), quoted_path("~")) == ("\"$HOME\"'/my proj'", '"$HOME"')
    assert "cd -- \"$HOME\"'/my proj' " in enter("~/my proj", {})


def test_a_missing_tool_and_a_missing_folder_say_what_they_are_told_to(tmp_path: Path) -> None:
    script = enter("/no/such/folder", {}, "echo no folder")
    script += find_and_run("flodl-nowhere", [], "echo no tool; exit 127")
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (127, "no folder\nno tool\n")

"""The ssh command line: composed purely, then handed to real shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flodl_agent import tunnel
from flodl_agent.ssh import remote_script, ssh_command, warnings
from flodl_wire.config import Ssh


def options(argv: list[str]) -> list[str]:
    return [argv[index + 1] for index, word in enumerate(argv) if word == "-o"]


def test_a_user_s_options_come_before_ours_because_the_first_of_a_key_wins() -> None:
    argv = ssh_command("node-b", Ssh(options=["StrictHostKeyChecking=no"]), None, "/srv/p", {})
    assert options(argv) == [
        "StrictHostKeyChecking=no",
        "ServerAliveInterval=10",
        "ServerAliveCountMax=3",
        "BatchMode=yes",
        "StrictHostKeyChecking=accept-new",
    ]


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
    argv = ssh_command("node-b", ssh, host_user, None, {})
    assert (argv[argv.index("-l") + 1] if "-l" in argv else None) == login


def test_port_identity_and_target_are_passed_and_the_target_stands_behind_a_double_dash() -> None:
    argv = ssh_command("node-b", Ssh(target="10.0.0.2", port=2222, identity_file="/k"), None, None, {})
    assert argv[argv.index("-p") + 1] == "2222" and argv[argv.index("-i") + 1] == "/k"
    assert argv[-3:-1] == ["--", "10.0.0.2"]
    assert ssh_command("node-b", None, None, None, {})[-3:-1] == ["--", "node-b"]


def test_a_weakened_batch_mode_is_warned_about() -> None:
    assert warnings("node-b", Ssh(options=["BatchMode=no"])) and warnings("node-b", Ssh(options=["batchmode no"]))
    assert not warnings("node-b", Ssh(options=["Compression=yes"])) and not warnings("node-b", None)


def fake_agent(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('#!/bin/sh\necho "$0 $1 in $PWD: $WORD"; cat\n')
    path.chmod(0o755)


def run_over_there(script: str, home: Path, shell: str, **more: str) -> subprocess.CompletedProcess[str]:
    """As sshd would: the login shell gets the command line as one string, the spec is on stdin."""
    env = {"HOME": str(home), "SHELL": shell, "PATH": "/usr/bin:/bin", **more}
    return subprocess.run([shell, "-c", script], input="the spec", capture_output=True, text=True, env=env, check=False)


SHELLS = [shell for shell in map(shutil.which, ("sh", "bash", "dash", "zsh", "fish", "tcsh", "ksh")) if shell]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_agent_is_found_in_the_projects_environment_first_then_in_the_users_then_by_the_login_shell(
    shell: str, tmp_path: Path
) -> None:
    project, home = tmp_path / "it's a $project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    word = 'two  words, it\'s "$HOME" 🙂'
    script = ssh_command("node-b", None, None, str(project), {"WORD": word})[-1]
    there = {
        "login": home / "bin/flodl-agent",
        "own": home / ".local/bin/flodl-agent",
        "venv": project / ".venv/bin/flodl-agent",
    }
    (home / ".profile").write_text(f'echo banner; PATH="{home}/bin:$PATH"\n')
    for agent in there.values():  # each found before the one made earlier
        fake_agent(agent)
        done = run_over_there(script, home, shell)
        assert done.stdout == f"{agent} run in {project}: {word}\nthe spec", done.stderr


def test_a_host_without_the_agent_answers_127_and_says_how_to_install_it(tmp_path: Path) -> None:
    done = run_over_there(ssh_command("node-b", None, None, str(tmp_path), {})[-1], tmp_path, "/bin/sh")
    assert done.returncode == 127
    assert "flodl-agent is not installed on " in done.stderr
    assert f"fix: on node-b: cd {tmp_path} && python3 -m venv .venv" in done.stderr


def test_a_missing_project_folder_is_named(tmp_path: Path) -> None:
    done = run_over_there(ssh_command("node-b", None, None, "/nowhere at all", {})[-1], tmp_path, "/bin/sh")
    assert done.returncode == 1
    assert "node-b has no folder /nowhere at all" in done.stderr


def test_a_tilde_in_the_path_is_the_home_over_there() -> None:
    assert "cd -- \"$HOME\"'/my proj'" in remote_script("node-b", "~/my proj", {})
    assert 'cd -- "$HOME" ' in remote_script("node-b", "~", {})


def test_nothing_that_is_no_variable_s_name_reaches_the_shell() -> None:
    assert "rm" not in remote_script("node-b", None, {"X; rm -rf /": "1"}).partition("for a in")[0]


def test_a_tunnel_asks_for_a_port_of_the_systems_choice_and_overrules_what_would_hide_it() -> None:
    argv = ssh_command("far", Ssh(options=["LogLevel=QUIET"]), None, None, {}, tunneled=1337)
    words = " ".join(argv)
    assert words.startswith("ssh -T -R 127.0.0.1:0:127.0.0.1:1337 -o LogLevel=INFO -o ControlPath=none")
    assert words.index("LogLevel=INFO") < words.index("LogLevel=QUIET"), "the first of a key wins"


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("Allocated port 41234 for remote forward to 127.0.0.1:1337", 41234),
        ("Warning: Allocated port 1 for remote forward to 127.0.0.1:1337\r", 1),
        ("Allocated port for nothing", None),
        ("Welcome to far", None),
    ],
)
def test_the_port_is_read_from_ssh_s_own_line(line: str, port: int | None) -> None:
    assert tunnel.port_in(line) == port

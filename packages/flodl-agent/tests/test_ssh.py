"""The ssh command that starts an agent; what is no agent's affair in it is flodl-wire's (`test_ssh_argv.py`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flodl_agent import tunnel
from flodl_agent.ssh import ssh_command, warnings
from flodl_wire.config import Ssh


def test_a_weakened_batch_mode_is_warned_about() -> None:
    assert warnings("node-b", Ssh(options=["BatchMode=no"])) and warnings("node-b", Ssh(options=["batchmode no"]))
    assert not warnings("node-b", Ssh(options=["Compression=yes"])) and not warnings("node-b", None)


def fake_agent(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('#!/bin/sh\necho "$0 $1 in $PWD: $WORD"; cat\n')
    path.chmod(0o755)


def run_over_there(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    """As sshd would: the login shell gets the command line as one string, the spec is on stdin."""
    env = {"HOME": str(home), "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        ["/bin/sh", "-c", script], input="the spec", capture_output=True, text=True, env=env, check=False
    )


def test_the_agent_runs_in_the_projects_folder_with_its_environment_and_its_spec_on_stdin(tmp_path: Path) -> None:
    agent = tmp_path / "project/.venv/bin/flodl-agent"
    fake_agent(agent)
    argv = ssh_command("node-b", Ssh(target="10.0.0.2"), "ann", str(tmp_path / "project"), {"WORD": "two  words"})
    assert argv[-5:-1] == ["-l", "ann", "--", "10.0.0.2"]
    done = run_over_there(argv[-1], tmp_path)
    assert done.stdout == f"{agent} run in {tmp_path}/project: two  words\nthe spec", done.stderr


def test_a_host_without_the_agent_answers_127_and_says_how_to_install_it(tmp_path: Path) -> None:
    done = run_over_there(ssh_command("node-b", None, None, str(tmp_path), {})[-1], tmp_path)
    assert done.returncode == 127
    assert "flodl-agent is not installed on " in done.stderr
    assert f"fix: on node-b: cd {tmp_path} && python3 -m venv .venv" in done.stderr


def test_a_missing_project_folder_is_named(tmp_path: Path) -> None:
    done = run_over_there(ssh_command("node-b", None, None, "/nowhere at all", {})[-1], tmp_path)
    assert done.returncode == 1
    assert "node-b has no folder /nowhere at all" in done.stderr


def test_a_tunnel_asks_for_a_port_of_the_systems_choice_and_overrules_what_would_hide_it() -> None:
    argv = ssh_command("far", Ssh(options=["LogLevel=QUIET"]), None, None, {}, tunneled=1337)
    words = " ".join(argv)
    assert words.startswith("ssh -T -o LogLevel=INFO -o ControlPath=none")
    assert " -R 127.0.0.1:0:127.0.0.1:1337 -- far " in words
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

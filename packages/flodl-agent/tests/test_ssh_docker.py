"""An agent in a container: the script that a host's shell gets, with a recording stand-in for docker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flodl_agent.ssh import remote_script, ssh_command

PAIRS = ["tower:10.0.0.2", "attic:10.0.0.3"]
WORD = 'two  words, it\'s "$HOME" 🙂'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "it's a $project"
    agent = folder / ".venv/bin/flodl-agent"
    agent.parent.mkdir(parents=True)
    agent.write_text('#!/bin/sh\necho "$1 in $PWD: $FLODL_HOST_NAME"; cat\n')
    agent.chmod(0o755)
    return folder


def say(script: str, docker: Any, shell: str = "/bin/sh", **more: str) -> subprocess.CompletedProcess[str]:
    env = {"HOME": "/nowhere", "SHELL": shell, "PATH": f"{docker.folder}:/usr/bin:/bin", **more}
    return subprocess.run([shell, "-c", script], input="the spec", capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize("shell", [shell for shell in map(shutil.which, ("sh", "bash", "zsh", "tcsh")) if shell])
def test_the_agent_is_looked_for_and_run_inside_and_the_spec_reaches_its_stdin(
    project: Path, docker: Any, shell: str
) -> None:
    argv = ssh_command("node-b", None, None, str(project), {"FLODL_HOST_NAME": WORD}, docker="cuda", extra_hosts=PAIRS)
    done = say(argv[-1], docker, shell)
    assert done.stdout == f"run in {project}: {WORD}\nthe spec", done.stderr
    (run,) = docker.runs
    assert run["words"][:4] == ["compose", "run", "--rm", "-T"]
    assert (run["service"], run["env"], run["hosts"]) == ("cuda", ["FLODL_HOST_NAME"], [])
    assert WORD not in " ".join(run["words"]), "values go in by name"


@pytest.mark.parametrize("known", [True, False])
def test_the_container_learns_the_hosts_by_a_second_compose_file_and_by_option_where_docker_has_it(
    project: Path, docker: Any, known: bool
) -> None:
    docker.with_add_host(known=known)
    (project / "compose.yml").write_text("services: {cuda: {image: x}}\n")
    (project / "compose.override.yml").write_text("{}")
    script = remote_script("node-b", str(project), {}, "cuda", PAIRS)
    assert say(script, docker).returncode == 0
    assert say(script, docker).returncode == 0, "a second time, over the files of the first"
    run = docker.runs[0]
    assert run["files"] == ["compose.yml", "compose.override.yml", ".fdl/compose-hosts.cuda.yml"]
    assert run["overlay"] == [{"services": {"cuda": {"extra_hosts": PAIRS}}}]
    assert run["hosts"] == (PAIRS if known else [])
    assert sorted(path.name for path in (project / ".fdl").iterdir()) == [".gitignore", "compose-hosts.cuda.yml"]


def test_files_chosen_by_hand_stay_and_ours_is_laid_on_top(project: Path, docker: Any) -> None:
    (project / "compose.yaml").write_text("services: {cuda: {image: x}}\n")
    script = remote_script("node-b", str(project), {}, "cuda", PAIRS)
    done = say(script, docker, COMPOSE_FILE="mine.yml")
    assert done.returncode == 0, done.stderr
    assert docker.runs[0]["files"] == []
    assert docker.runs[0]["overlay"] == [{"services": {"cuda": {"extra_hosts": PAIRS}}}]


def test_inside_the_path_of_the_image_counts_before_a_login_shells(project: Path, docker: Any) -> None:
    agent = project / ".venv/bin/flodl-agent"
    agent.rename(docker.folder / "flodl-agent")
    done = say(remote_script("node-b", str(project), {"FLODL_HOST_NAME": "b"}, "cuda"), docker)
    assert done.stdout == f"run in {project}: b\nthe spec", done.stderr


def test_without_a_docker_or_without_an_agent_inside_it_is_127_with_the_way_on(project: Path, docker: Any) -> None:
    (project / ".venv/bin/flodl-agent").unlink()
    script = remote_script("node-b", str(project), {}, "cuda", PAIRS)
    done = say(script, docker)
    assert done.returncode == 127
    assert "fix: put flodl-agent and flodl-planes into the image of the service cuda" in done.stderr
    (docker.folder / "docker").unlink()
    if shutil.which("docker", path="/usr/bin:/bin") is None:
        done = say(script, docker)
        assert done.returncode == 127
        assert "node-b cannot run the service cuda: there is no `docker` on PATH" in done.stderr
        assert "fix: install docker" in done.stderr

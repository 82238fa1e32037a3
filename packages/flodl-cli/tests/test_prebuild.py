"""What is built for other hosts before a run, and when it is not built again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flodl_cli import building
from flodl_cli.building import build_all, what_is_there
from flodl_cli.command import Command
from flodl_cli.node import Node
from flodl_cli.prebuild import (
    NO_ARCH,
    RECIPE,
    Prebuild,
    digest_of_files,
    fingerprint,
    installable,
    plan_prebuild,
)
from flodl_wire.config import Cluster, parse_cluster
from flodl_wire.faults import Refused
from flodl_wire.specs import Site

OWN = "{}.{}".format(*sys.version_info[:2])
PACKAGE = '[build-system]\nrequires = ["hatchling"]\n\n[project]\nname = "digits"\n'
WRITE = 'printf "%s %s" "$FLODL_BUILD_HOST" "$FLODL_BUILD_ARCH" >"$FLODL_BUILD_SITE/built"; echo once >>"$COUNT"'


def cluster(*hosts: dict[str, Any], **controller: Any) -> Cluster:
    workers = [{"local_devices": 0, "path": "/p", "nccl_socket_ifname": "e", **host} for host in hosts]
    return parse_cluster({"controller": {"host": "desk", "path": "/p", **controller}, "workers": workers})


TWO = cluster({"host": "here"}, {"host": "tower", "arch": "precompiled/cu128"}, {"host": "attic"})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLODL_HOST_NAME", "here")
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    folder = tmp_path / "a project"
    folder.mkdir()
    return folder


def command(folder: Path, build: str | None = None) -> Command:
    made = Command("train", Node({}, "fdl.yml", 1), str(folder))
    made.build = build
    return made


def plan(project: Path, build: str | None = WRITE, block: Cluster = TWO) -> Prebuild:
    made = plan_prebuild(str(project), command(project, build), block)
    assert made is not None
    return made


def builds(project: Path) -> int:
    count = project.parent / "count"
    return len(count.read_text().split()) if count.exists() else 0


# --- deciding


def test_every_remote_host_has_a_folder_by_host_and_arch_and_this_box_has_none(project: Path) -> None:
    made = plan(project)
    assert [build.folder for build in made.builds] == [
        "target/cluster/tower/precompiled/cu128",
        f"target/cluster/attic/{NO_ARCH}",
    ]
    assert made.stated


def test_nothing_is_built_where_nothing_says_how_or_for_nobody_else(project: Path) -> None:
    assert plan_prebuild(str(project), command(project), TWO) is None
    assert plan_prebuild(str(project), command(project, WRITE), cluster({"host": "localhost"})) is None
    (project / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert not installable(str(project))
    (project / "pyproject.toml").write_text(PACKAGE)
    made = plan(project, None)
    assert (made.line, made.stated, made.place) == (RECIPE, False, ".")
    below = project / "models"
    below.mkdir()
    made_below = plan_prebuild(str(project), command(below, WRITE), TWO)
    assert made_below is not None and made_below.place == "models"


def test_the_controllers_service_and_arch_serve_the_build(project: Path) -> None:
    block = cluster({"host": "tower"}, {"host": "attic", "arch": "builds/x"}, docker="dev", arch="precompiled/cpu")
    made = plan(project, block=block)
    assert made.docker == "dev"
    assert [build.arch for build in made.builds] == ["precompiled/cpu", "builds/x"]


@pytest.mark.parametrize("arch", ["../../..", "/etc", "a//b", "./x"])
def test_an_arch_that_leads_out_of_the_folder_is_refused(project: Path, arch: str) -> None:
    with pytest.raises(Refused, match=r"workers\[0\]\.arch"):
        plan(project, block=cluster({"host": "tower", "arch": arch}))


def test_the_fingerprint_follows_recipe_arch_and_files_and_nothing_that_a_run_leaves(project: Path) -> None:
    made = plan(project)
    (project / "train.py").write_text("1")
    files = digest_of_files(made)
    first = fingerprint(made, made.builds[0], "", files)
    assert fingerprint(made, made.builds[1], "", files) != first
    assert fingerprint(made, made.builds[0], "cu129", files) != first
    assert fingerprint(made, made.builds[0], "", "other") != first
    assert fingerprint(plan(project, "another recipe"), made.builds[0], "", files) != first
    for name in ("runs/x", ".venv/x", "target/x", "__pycache__/x", ".git/x", "digits.egg-info/x"):
        (project / name).parent.mkdir()
        (project / name).write_text("1")
    assert digest_of_files(made) == files
    (project / "train.py").write_text("22")
    assert digest_of_files(made) != files


# --- building


def test_all_hosts_are_built_for_once_and_again_only_when_something_changed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = build_all(plan(project))
    assert sites["tower"] == Site("target/cluster/tower/precompiled/cu128/site", OWN, required=True)
    assert (project / sites["tower"].path / "built").read_text() == "tower precompiled/cu128"
    assert (project / sites["attic"].path / "built").read_text() == "attic "
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert any(line.startswith("fdl: prebuild for tower (precompiled/cu128): built in ") for line in lines)
    assert build_all(plan(project)) == sites
    assert sorted(capsys.readouterr().err.splitlines()) == [
        "fdl: prebuild for attic: unchanged",
        "fdl: prebuild for tower (precompiled/cu128): unchanged",
    ]
    assert builds(project) == 2
    build_all(plan(project, block=cluster({"host": "tower", "arch": "precompiled/cu129"})), quiet=True)
    assert builds(project) == 3, "another arch is another build, and the old one stays"
    (project / "train.py").write_text("new")
    build_all(plan(project), quiet=True)
    assert builds(project) == 5
    assert capsys.readouterr().err == ""
    assert (project / "target/cluster/.gitignore").read_text() == "*\n"


def test_what_was_built_before_is_used_without_a_build(project: Path) -> None:
    assert what_is_there(plan(project)) == {}
    sites = build_all(plan(project), quiet=True)
    (project / "train.py").write_text("new")
    assert what_is_there(plan(project)) == sites
    (project / "target/cluster/attic/any/stamp.json").write_text("{")
    assert list(what_is_there(plan(project))) == ["tower"]
    assert builds(project) == 2


def test_all_hosts_are_built_at_once(project: Path) -> None:
    """Each waits for the other: one after the other they would never end."""
    meet = (
        'mkdir -p "$COUNT.d"; : >"$COUNT.d/$FLODL_BUILD_HOST"; until [ -e "$COUNT.d/tower" -a -e "$COUNT.d/attic" ]; '
    )
    build_all(plan(project, meet + "do :; done"), quiet=True)


def test_the_first_failure_ends_the_others_and_what_was_built_before_stays(project: Path) -> None:
    build_all(plan(project), quiet=True)
    wait = 'if [ "$FLODL_BUILD_HOST" = attic ]; then echo "cannot compile"; echo why >&2; exit 3; fi; exec sleep 100'
    with pytest.raises(Refused) as caught:
        build_all(plan(project, wait), quiet=True)
    fault = caught.value
    assert fault.what == "cannot build for attic"
    assert "exit 3); no host was dialled\n  cannot compile\n  why" in fault.why
    assert "--no-prebuild" in fault.fix and "build.log" in fault.fix
    assert (project / "target/cluster/attic/any/site/built").read_text() == "attic "
    assert what_is_there(plan(project))["attic"].python == OWN
    end, pause = time.monotonic() + 20, threading.Event()
    while _sleepers(project):  # killed with its group, whose first process alone is waited for
        assert time.monotonic() < end, "the other build goes on"
        pause.wait(0.02)


def _sleepers(project: Path) -> list[str]:
    found = subprocess.run(["pgrep", "-f", "^sleep 100$"], capture_output=True, text=True, check=False).stdout.split()
    return [pid for pid in found if _is_ours(pid, project)]


def _is_ours(pid: str, project: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(project)
    except OSError:
        return False


def test_ctrl_c_ends_every_build(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = threading.Event(), []

    def interrupt(*args: object, **more: object) -> None:
        started.wait(20)
        raise KeyboardInterrupt

    real = subprocess.Popen

    def popen(*args: Any, **more: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = real(*args, **more)
        ended.append(process)
        if len(ended) == 2:
            started.set()
        return process

    monkeypatch.setattr(building, "wait", interrupt)
    monkeypatch.setattr("subprocess.Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        build_all(plan(project, "exec sleep 100"), quiet=True)
    assert [process.returncode for process in ended] == [-15, -15]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_every_build_before_it_ends_fdl(project: Path, number: signal.Signals) -> None:
    """Each build writes its own pid and waits; the last one to come up sends the signal."""
    (project / "fdl.yml").write_text(
        "commands: {t: {run: 'true', cluster: true, build: 'echo $$ >>\"$COUNT\"; exec sleep 100'}}\n"
        "cluster:\n"
        "  controller: {host: 10.0.0.1, path: /p}\n"
        "  workers: [{host: a, local_devices: 0, path: /p, nccl_socket_ifname: e},\n"
        "            {host: b, local_devices: 0, path: /p, nccl_socket_ifname: e}]\n"
    )
    program = (
        "import os, sys, threading, time\n"
        "from flodl_cli import sibling; sibling.find = lambda name: None if name.startswith('fdl-') else '/x/' + name\n"
        "from flodl_cli import building\n"
        "up = building._Site._until_ended\n"
        "def watched(*args):\n"
        "    def tell():\n"
        "        while not os.path.exists(os.environ['COUNT']) or len(open(os.environ['COUNT']).read().split()) < 2:\n"
        "            os.sched_yield()\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "    if threading.active_count() < 4:\n"
        "        threading.Thread(target=tell, daemon=True).start()\n"
        "    return up(*args)\n"
        "building._Site._until_ended = watched\n"
        "from flodl_cli.main import main; sys.exit(main(['t']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == (130 if number == signal.SIGINT else -number), done.stderr
    for pid in (project.parent / "count").read_text().split():
        assert not Path(f"/proc/{pid}").exists()


def test_a_place_that_cannot_be_written_is_a_sentence(project: Path) -> None:
    (project / "target").write_text("a file")
    with pytest.raises(Refused, match="cannot build for tower"):
        build_all(plan(project, block=cluster({"host": "tower"})), quiet=True)


def test_what_is_built_runs_at_another_place(project: Path) -> None:
    """A folder of packages knows no path of its own; here made by hand, as `pip install --target` does."""
    line = 'mkdir "$FLODL_BUILD_SITE/digits_x"; echo "WHERE = __file__" >"$FLODL_BUILD_SITE/digits_x/__init__.py"'
    sites = build_all(plan(project, line, cluster({"host": "tower"})), quiet=True)
    moved = project.parent / "mounted elsewhere"
    project.rename(moved)
    say = "import digits_x; print(digits_x.WHERE)"
    env = {**os.environ, "PYTHONPATH": str(moved / sites["tower"].path)}
    said = subprocess.run([sys.executable, "-c", say], env=env, capture_output=True, text=True, check=True).stdout
    assert said.startswith(str(moved))


def test_the_build_happens_in_the_controllers_service(project: Path, docker: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(docker.folder), os.environ["PATH"]]))
    monkeypatch.setattr(sys, "executable", str(docker.folder / "python"))  # nothing of the real box stands beside it
    monkeypatch.setenv("HOME", os.environ["COUNT"])
    (project / "sub").mkdir()
    (project / "libtorch/precompiled/cu128/lib").mkdir(parents=True)
    line = 'printf "%s %s %s" "$PWD" "$LIBTORCH_PATH" "$FDL_GPU_FEATURE" >"$FLODL_BUILD_SITE/built"'
    block = cluster({"host": "tower"}, docker="dev", arch="precompiled/cu128")
    made = plan_prebuild(str(project), command(project / "sub", line), block)
    assert made is not None
    sites = build_all(made, quiet=True)
    assert (project / sites["tower"].path / "built").read_text() == f"{project}/sub ../libtorch/precompiled/cu128 cuda"
    (run,) = docker.runs
    assert (run["service"], run["cwd"]) == ("dev", str(project))
    assert "FLODL_BUILD_SITE" in run["env"]
    assert json.loads((project / "target/cluster/tower/precompiled/cu128/stamp.json").read_text())["python"] == OWN

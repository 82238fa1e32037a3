"""Bad input gets what, why and fix in one breath: exit 1 (2 for usage), no traceback, nothing started."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import Any

import pytest
from integration.conftest import Make
from integration.project import Project, rank_command

SAY = {"run": rank_command("say.py"), "mode": "torch"}


def refused(made: Project, *words: str, code: int = 1, says: tuple[str, ...], fix: bool = True) -> str:
    """`fdl WORDS` is refused in these words, and has started nothing."""
    done = made.fdl(*words)
    assert done.returncode == code, done
    for piece in says:
        assert piece in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not fix or "fix: " in done.stderr, done.stderr
    assert done.stdout == ""
    assert not made.inventory()
    assert not (made.folder / "runs").exists()
    return done.stderr


BLOCKS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "an unknown key": ({"controler": {}}, ("cluster.controler", "controller")),
    "a wrong type": ({"env": "A=1"}, ("cluster.env",)),
    "a reserved variable": ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, ("CUDA_VISIBLE_DEVICES",)),
    "a value that is no text": ({"env": {"A": 1}}, ("cluster.env", "A")),
}
WORKERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a host that looks like an option": ({"host": "-oProxyCommand=id"}, ("-oProxyCommand=id", "option")),
    "a device twice": ({"local_devices": [0, 0]}, ("device 0", "twice")),
    "a device spec that means nothing": ({"local_devices": "gpu"}, ("local_devices", "cpu:2")),
    "ranks spelled out": ({"ranks": [0, 1]}, ("ranks",)),
    "an unknown key of ssh": ({"ssh": {"targt": "x"}}, ("ssh.targt",)),
}


@pytest.mark.parametrize("case", BLOCKS)
def test_a_cluster_block_with(project: Make, case: str) -> None:
    made = project(say=SAY)
    made.write("fdl.one.yml", {"cluster": {**made.one_box(2), **BLOCKS[case][0]}})
    refused(made, "@one", "say", says=BLOCKS[case][1])


@pytest.mark.parametrize("case", WORKERS)
def test_a_worker_with(project: Make, case: str) -> None:
    made = project(say=SAY)
    block = made.one_box(2)
    block["workers"][0] |= WORKERS[case][0]
    made.write("fdl.one.yml", {"cluster": block})
    refused(made, "@one", "say", says=WORKERS[case][1])


def test_two_hosts_without_an_interface(project: Make) -> None:
    made = project(say=SAY)
    block = made.one_box(1)
    block["workers"].append({**block["workers"][0], "host": "elsewhere"})
    made.write("fdl.one.yml", {"cluster": block})
    refused(made, "@one", "say", says=("nccl_socket_ifname", "several hosts"))


def test_an_overlay_that_is_missing_with_those_that_exist(project: Make) -> None:
    refused(project(say=SAY), "@won", "say", says=("won", "one"))


def test_a_command_that_is_not_in_the_manifest(project: Make) -> None:
    done = project(say=SAY).fdl("@one", "sya")
    assert done.returncode in (2, 127) and "say" in done.stderr and "Traceback" not in done.stderr


def test_a_mode_that_does_not_exist(project: Make) -> None:
    refused(project(say={"run": "true"}), "@one", "--mode", "gpu_sync", "say", code=2, says=("gpu_sync", "cpu_sync"))


def test_no_gpu_and_no_cpu_ranks_prints_the_flag(project: Make) -> None:
    made = project(say={"run": "true"})
    done = made.fdl("--gpus", "all", "say")
    assert done.returncode in (1, 2) and "cpu:2" in done.stderr and "Traceback" not in done.stderr


def test_a_bad_time_scale_before_anything_is_touched(project: Make) -> None:
    made = project(say=SAY)
    run = made.start("@one", "say", env={"FLODL_NET_TIMEOUT_SCALE": "soon"})
    assert run.wait() == 1
    assert "FLODL_NET_TIMEOUT_SCALE" in run.text and "Traceback" not in run.text
    assert not (made.folder / "runs").exists()


def test_a_port_in_use_names_the_port_and_its_holder(project: Make) -> None:
    made = project(say=SAY)
    with socket.create_server(("127.0.0.1", made.port)):
        words = refused(made, "@one", "say", says=(str(made.port), str(os.getpid())))
    holder = subprocess.run(["ps", "-o", "comm=", str(os.getpid())], capture_output=True, text=True).stdout.strip()
    assert holder in words


def test_a_run_on_the_port_of_another_run_names_that_run(project: Make) -> None:
    stay = {"run": rank_command("say.py", "--stay", "-1"), "mode": "torch"}
    made = project(say=stay)
    first = made.start("@one", "say")
    first.line(r':0\] \{"rank"')
    done = made.fdl("@one", "say")
    assert done.returncode == 1 and str(made.port) in done.stderr and "flodl-window" in done.stderr
    first.interrupt()
    assert first.wait() == 130

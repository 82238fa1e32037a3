"""What can be said of the GPU's script where there is no GPU: its parts begin, and without one it says so."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tools.gpu import __main__ as script
from tools.gpu.executables import ROOT, lay_out, sources


def module(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    done = module("tools.gpu", "--out", str(tmp_path / "found"))
    if done.returncode == 0:
        pytest.skip("there is a GPU")
    assert (done.returncode, "no GPU here" in done.stdout) == (script.NO_GPU, True), done.stderr
    assert not list((tmp_path / "found").iterdir())


def test_the_world_of_one_can_be_rehearsed_on_the_processor() -> None:
    done = module("tools.gpu.world_of_one", "nccl_cadence", "--cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["collective"], found["samples"], found["rounds"] > 0) == ("gloo", 128, True)


def test_the_project_of_two_hosts_that_are_one_box_is_one_that_fdl_takes(tmp_path: Path) -> None:
    names = lay_out(tmp_path / "bin")
    assert {"fdl", "flodl-window", "flodl-agent", "flodl-planes"} <= set(names)
    folder = script.project(tmp_path / "mixed", {socket.gethostname(): [0], "localhost": "cpu:1"})
    done = subprocess.run(
        [tmp_path / "bin" / "fdl", "--env", "box", "config", "show", "--json"],
        cwd=folder, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sources())},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [worker["local_devices"] for worker in shown["cluster"]["workers"]] == [[0], "cpu:1"]

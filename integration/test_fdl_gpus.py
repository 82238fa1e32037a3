"""`--gpus` on a box with four GPUs, whose `nvidia-smi` is a stand-in: what a command may see, alone and as ranks."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from integration.conftest import Make, OwnNetwork
from integration.project import BIN, Project, rank_command

SMI = """\
#!/bin/sh
# A stand-in for nvidia-smi on a box with four cards.
case "$1" in
  --query-gpu=*)
    for number in 0 1 2 3; do
      line=
      for field in $(echo "${1#--query-gpu=}" | tr , ' '); do
        case "$field" in
          index) value=$number ;;
          name) value="NVIDIA Test" ;;
          uuid) value="GPU-$number" ;;
          pci.bus_id) value="00000000:0$number:00.0" ;;
          memory.total) value=8000 ;;
          compute_cap) value=8.6 ;;
          driver_version) value=570.1 ;;
          *) value="[N/A]" ;;
        esac
        line="$line${line:+, }$value"
      done
      echo "$line"
    done ;;
  -L) for number in 0 1 2 3; do echo "GPU $number: NVIDIA Test (UUID: GPU-$number)"; done ;;
esac
"""
MASKS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES")
SEEN = rank_command("say.py", *(word for name in MASKS for word in ("--env", name)))
UNSET = "<unset>"


@pytest.fixture
def box(project: Make, tmp_path: Path) -> Project:
    cards = tmp_path / "cards"
    cards.mkdir()
    (cards / "nvidia-smi").write_text(SMI)
    (cards / "nvidia-smi").chmod(0o755)
    made = project(
        plain={"run": SEEN, "cluster": False},
        many={"run": SEEN, "mode": "cpu_cadence"},
        whole={"run": SEEN, "mode": "torch"},
    )
    made.cards = cards  # type: ignore[attr-defined]
    return made


def fdl(box: Project, *words: str, network: list[str] | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{box.cards}:{BIN}:{os.environ['PATH']}"  # type: ignore[attr-defined]
    return subprocess.run(
        [*(network or []), str(BIN / "fdl"), *words], cwd=box.folder, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=60, check=False, env={**box.environment(), "PATH": path, **env},
    )  # fmt: skip


def seen(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What each process saw as CUDA_VISIBLE_DEVICES, in the order of ranks."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        said = re.fullmatch(r"(?:\[\S+?:(\d+)\] )?(\{.*\})", line)
        if said:
            found[said[1] or "0"] = json.loads(said[2])["env"]
    for env in found.values():
        assert env["CUDA_DEVICE_ORDER"] == ("PCI_BUS_ID" if env["CUDA_VISIBLE_DEVICES"] != UNSET else UNSET)
    return [found[rank]["CUDA_VISIBLE_DEVICES"] for rank in sorted(found, key=int)]


def test_a_command_that_is_one_process_gets_the_mask(box: Project) -> None:
    assert seen(fdl(box, "plain")) == [UNSET]
    assert seen(fdl(box, "--gpus", "all", "plain")) == [UNSET]
    assert seen(fdl(box, "--gpus", "0,2", "plain")) == ["0,2"]
    assert seen(fdl(box, "--gpus", "3", "plain")) == ["3"]
    assert seen(fdl(box, "--gpus", "cpu:1", "plain")) == ["-1"]
    done = fdl(box, "--gpus", "cpu:2", "plain")
    assert (done.returncode, "runs as one process" in done.stderr) == (2, True)


def test_one_device_for_a_cluster_command_is_one_process_that_sees_it_alone(box: Project) -> None:
    assert seen(fdl(box, "--gpus", "2", "many")) == ["2"]
    assert seen(fdl(box, "--gpus", "cpu:1", "many")) == ["-1"]
    done = fdl(box, "many", CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert seen(done)[0] == "1"
    assert "one GPU is visible: 'many' runs as one process on it" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected", "said"),
    [
        (["many"], ["0", "1", "2", "3"], "4 GPUs are visible: 'many' gets a rank on each (--gpus 0 for one process)"),
        (["--gpus", "1,3", "many"], ["1", "3"], "2 ranks"),
        (["--gpus", "cpu:2", "many"], ["", ""], "2 ranks"),
        (["--gpus", "ALL", "whole"], ["0,1,2,3"] * 4, "4 ranks"),
    ],
)
def test_two_devices_and_more_are_a_cluster_of_this_box_with_a_rank_on_each(
    box: Project, own_network: OwnNetwork, words: list[str], expected: list[str], said: str
) -> None:
    done = fdl(box, *words, network=own_network(box.folder))
    assert seen(done) == expected
    assert said in done.stderr


def test_under_an_overlay_it_overrides_this_box_alone(box: Project) -> None:
    done = fdl(box, "--gpus", "0,3", "@one", "many")
    assert seen(done) == ["0", "3"]


BAD = {
    "": "its value is empty",
    "0,": "an index must be a whole number",
    "x": "an index must be a whole number",
    "-1": "an index must be a whole number",
    "1.5": "an index must be a whole number",
    "1,1": "device 1 stands there twice",
    "cpu:0": "a number of ranks from 1 to 256",
    "cpu:x": "a number of ranks from 1 to 256",
    "4": "GPUs visible on this box: 0, 1, 2, 3",
    "0,9": "cannot use GPU 9",
}


@pytest.mark.parametrize("command", ["plain", "many"])
def test_a_bad_spec_is_refused_and_nothing_runs(box: Project, command: str) -> None:
    for spec, why in BAD.items():
        done = fdl(box, "--gpus", spec, command)
        assert done.returncode == (1 if "GPU" in why else 2), done.stderr
        assert why in done.stderr and "fix: " in done.stderr
        assert done.stdout == ""

"""The installed executable, as the agent and people call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flodl_probe import inventory, nvml
from flodl_probe.device import AMD, NVIDIA, Device

PROBE = Path(sys.executable).parent / "flodl-probe"
TABLE = "0, GPU-1, 00000000:01:00.0, NVIDIA Test, 9.0, 1024\n1, GPU-2, 00000000:02:00.0, NVIDIA Test, 9.0, 1024\n"

real_driver = pytest.mark.skipif(nvml.find_library() is not None, reason="a real NVIDIA driver answers first")


def run(*words: str, folder: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.environ["PATH"] if folder is None else f"{folder}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [PROBE, *words], capture_output=True, text=True, env={**os.environ, "PATH": path, **env}, check=False
    )


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '%s' '{TABLE}'\n")
    tool.chmod(0o755)
    return tmp_path


@real_driver
def test_devices_as_json_are_one_document_and_exit_0(fake: Path) -> None:
    answer = run("devices", "--json", folder=fake)
    assert (answer.returncode, answer.stderr) == (0, "")
    document = json.loads(answer.stdout)
    assert [device["index"] for device in document["devices"]] == [0, 1]
    assert document["notes"] == []


@real_driver
def test_the_mask_of_the_environment_counts(fake: Path) -> None:
    document = json.loads(run("devices", "--json", folder=fake, CUDA_VISIBLE_DEVICES="GPU-2").stdout)
    assert [device["index"] for device in document["devices"]] == [1]


@real_driver
def test_a_box_without_gpus_is_an_answer(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 6\n")
    tool.chmod(0o755)
    answer = run("devices", "--json", folder=tmp_path)
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["devices"] == []
    assert "cpu:2" in run("devices", folder=tmp_path).stderr


@real_driver
def test_people_get_a_line_a_card(fake: Path) -> None:
    answer = run("devices", folder=fake)
    assert answer.stdout.splitlines()[1] == "1  NVIDIA Test (1GB, sm90)  0000:02:00.0  GPU-2"


def test_version_and_help_and_a_typo() -> None:
    assert run("--version").stdout.startswith("flodl-probe ")
    assert run("--help").returncode == 0
    assert run("devices", "--help").returncode == 0
    assert run("devises").returncode == 2


def test_a_graphics_unit_beside_an_nvidia_card_is_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(inventory, "_nvidia", lambda: ([Device(0, NVIDIA, name="Card")], []))
    monkeypatch.setattr(
        inventory.kfd, "query", lambda *_: ([Device(0, AMD, name="raphael", arch="gfx1036")], ["closed"])
    )
    found = inventory.take({})
    assert [device.vendor for device in found.devices] == [NVIDIA]
    assert found.notes == ["beside the NVIDIA GPUs this box has raphael (gfx1036): left out, one run uses one vendor"]


def test_amd_cards_alone_are_offered_through_their_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_nvidia", lambda: ([], []))
    monkeypatch.setattr(inventory.kfd, "query", lambda *_: ([Device(0, AMD), Device(1, AMD)], []))
    assert [device.index for device in inventory.take({"HIP_VISIBLE_DEVICES": "1"}).devices] == [1]


def test_what_one_source_says_and_the_other_contradicts_stays_in_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory.nvml, "query", lambda: ([], ["NVML failed: x"]))
    monkeypatch.setattr(inventory.nvidia_smi, "query", lambda: ([Device(0, NVIDIA)], []))
    found = inventory.take({})
    assert (len(found.devices), found.notes) == (1, ["NVML failed: x"])

"""The installed executable, as the agent and people call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flodl_probe import inventory, nvml
from flodl_probe.device import AMD, NVIDIA, Device
from flodl_wire import environ

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


# the audit


def audit(*words: str, folder: Path | None = None, **env: str) -> tuple[int, dict[str, Any]]:
    answer = run("--json", *words, folder=folder, **env)
    assert answer.stdout.count("\n") == 1, answer.stdout + answer.stderr
    return answer.returncode, json.loads(answer.stdout)


def test_a_fit_box_is_green_in_two_lines() -> None:
    answer = run("--devices", "cpu:1", "--skip-mount")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = [line for line in answer.stdout.splitlines() if not ("torch is not" in line or "pip install" in line)]
    assert len(lines) == 2, answer.stdout


@real_driver
def test_a_box_without_a_gpu_is_not_and_the_way_on_is_shown() -> None:
    code, document = audit("--skip-mount")
    assert code == 1 and document["level"] == "error"
    assert "--devices cpu:2" in run().stdout


@real_driver
def test_a_driver_tool_that_lists_cards_which_the_driver_library_lacks_is_never_green(fake: Path) -> None:
    code, document = audit("--skip-mount", folder=fake)
    host = document["hosts"][0]
    assert code == 1 and len(host["gpus"]) == 2
    assert any("libcuda" in issue for issue in host["issues"])


@real_driver
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9", "not loaded"),
        ("printf '0, GPU-1, 00000000:01:0'", "nvidia-smi says"),
        ("echo 'Aucun périphérique trouvé'; exit 1", "nvidia-smi"),
        ("kill -9 $$", "signal 9"),
    ],
    ids=["broken driver", "truncated", "localised", "killed"],
)
def test_whatever_the_driver_s_tool_does_the_audit_says_it_and_ends(tmp_path: Path, script: str, words: str) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    code, document = audit("--skip-mount", folder=tmp_path)
    assert code == 1
    assert words in " ".join(document["hosts"][0]["issues"])


def test_a_declared_folder_that_is_not_there_is_an_error() -> None:
    code, document = audit("--devices", "cpu:1", "--data-path", "/no/such/data")
    assert code == 1 and document["hosts"][0]["data_path"]["exists"] is False


def test_the_flags_are_judged_before_anything_is_asked() -> None:
    for line in ("--timeout 0", "--timeout nan", "--config a --cluster b", "--controller a:b"):
        words = line.split()
        answer = run(*words, "--devices", "cpu:1")
        assert answer.returncode in (1, 2) and "Traceback" not in answer.stderr and answer.stderr, words


CLUSTER = {
    "controller": {"host": "127.0.0.1", "path": "/"},
    "workers": [{"host": "localhost", "local_devices": "cpu:1", "path": "/"}],
}


def test_the_config_comes_as_json_as_yaml_or_from_fdl(tmp_path: Path, free_port: int) -> None:
    here = {"cluster": {**CLUSTER, "controller": {**CLUSTER["controller"], "port": free_port}}}  # type: ignore[dict-item]
    file = tmp_path / "c.json"
    file.write_text(json.dumps(here))
    handed = {environ.CONFIG_JSON: json.dumps(here).encode().hex()}
    for words, env in ((["--config", str(file)], {}), (["--cluster", str(file)], {}), ([], handed)):
        _, document = audit(*words, **env)
        assert [(host["host"] == "localhost", host["role"]) for host in document["hosts"]] == [
            (False, "controller"),
            (True, "worker"),
        ], words
    _, document = audit("--here", **handed)
    assert len(document["hosts"]) == 1 and document["hosts"][0]["role"] == "worker"


@pytest.mark.parametrize("text", ["", "[", "[]", "3", "a: [", '{"cluster": 3}', '{"cluster": {"master_addr": 1}}'])
@pytest.mark.parametrize("flag", ["--config", "--cluster"])
def test_no_config_ends_in_a_traceback(tmp_path: Path, flag: str, text: str) -> None:
    file = tmp_path / "c"
    file.write_text(text)
    answer = run("--json", "--devices", "cpu:1", "--skip-mount", flag, str(file))
    assert answer.returncode in (0, 1) and "Traceback" not in answer.stderr
    json.loads(answer.stdout)


def test_every_old_key_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "c"
    file.write_text(json.dumps({"cluster": {"controller": {"master_addr": "a", "master_port": 1}, "workers": []}}))
    code, document = audit("--cluster", str(file))
    named = [finding["what"].split()[0] for finding in document["findings"]]
    assert code == 1 and named[:2] == ["cluster.controller.master_addr", "cluster.controller.master_port"]


def test_the_schema_is_one_document() -> None:
    schema = json.loads(run("schema").stdout)
    assert "HostReport" in schema["$defs"]


def test_a_question_is_answered_behind_a_marker_and_nonsense_is_refused() -> None:
    asked = '{"host": "me", "devices": "cpu:1", "skip_mount": true}'
    answer = subprocess.run([PROBE, "answer"], input=asked, capture_output=True, text=True, check=True)
    head, _, line = answer.stdout.partition("flodl-probe-report:")
    assert head == "\n" and json.loads(line)["host"] == "me"
    refused = subprocess.run([PROBE, "answer"], input="[", capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr


def test_the_audit_does_not_import_torch() -> None:
    code = "import sys; from flodl_probe.main import run; run(['--devices', 'cpu:1']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_ctrl_c_ends_every_ssh_at_once(tmp_path: Path, free_port: int) -> None:
    """The stand-in for ssh says that it runs through a fifo, whose end tells that it is gone."""
    fifo = tmp_path / "running"
    os.mkfifo(fifo)
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec 9>{fifo}\necho up >&9\nexec sleep 600 >/dev/null 2>&1\n")
    ssh.chmod(0o755)
    worker = {"host": "far-away", "local_devices": "cpu:1", "path": "/"}
    config = tmp_path / "c.json"
    controller = {"host": "127.0.0.1", "path": "/", "port": free_port}
    config.write_text(json.dumps({"cluster": {"controller": controller, "workers": [worker]}}))
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    probe = subprocess.Popen([PROBE, "--timeout", "100", "--config", str(config)], env=env, stderr=subprocess.PIPE)
    with fifo.open() as reader:
        assert reader.readline() == "up\n"
        probe.send_signal(signal.SIGINT)
        assert reader.read() == ""
    _, said = probe.communicate(timeout=30)
    assert (probe.returncode, said) == (130, b"")

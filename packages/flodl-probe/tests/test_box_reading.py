"""Reading a box: recorded trees and adversarial files, real libraries and folders."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_probe.checks.data import check_data
from flodl_probe.checks.system import check_limits, check_shm
from flodl_probe.checks.tooling import check_docker, check_project, check_tools
from flodl_probe.child_answer import NoAnswer, from_child
from flodl_probe.facts import Box, BusCard, DataPath, Docker, Facts, Gpu
from flodl_probe.install_words import driver_fix, install
from flodl_probe.question import Question
from flodl_probe.reading import (
    box,
    bus,
    cuda_driver,
    data_folder,
    deep_run,
    docker_engine,
    gpu_health,
    nccl_library,
    tools,
)


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("release", "manager", "line"),
    [
        ('ID=ubuntu\nID_LIKE=debian\nPRETTY_NAME="Ubuntu 24.04"', "apt", "sudo apt install openssh-client"),
        ("ID=rocky\nID_LIKE='rhel centos fedora'", "dnf", "sudo dnf install openssh-clients"),
        ("ID=arch", "pacman", "sudo pacman -S openssh"),
        ("ID=opensuse-leap\nID_LIKE='suse opensuse'", "zypper", "sudo zypper install openssh"),
        ("ID=alpine", "apk", "sudo apk add openssh"),
        ("# nothing\nnonsense", "", "install openssh with this system's package manager"),
    ],
)
def test_fixes_are_in_the_words_of_the_box_s_own_package_manager(
    tmp_path: Path, release: str, manager: str, line: str
) -> None:
    write(tmp_path, "etc/os-release", release)
    assert box.manager(box.os_release(tmp_path), "Linux") == manager
    assert install("ssh", manager) == line


def test_install_lines_for_root_for_our_own_and_for_macs() -> None:
    assert install("sshfs", "dnf", root=True) == "dnf install fuse-sshfs"
    assert install("flodl-agent", "apt") == "pip install flodl-agent"
    assert install("rsync", box.manager({}, "Darwin")) == "brew install rsync"
    assert "ubuntu-drivers" in driver_fix("apt", True, False) and "--gpus all" in driver_fix("apt", True, True)


def test_containers_are_known_by_their_engine_s_mark(tmp_path: Path) -> None:
    assert box.container(tmp_path, {}) == ""
    assert box.container(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "kubernetes"
    write(tmp_path, ".dockerenv", "")
    assert box.container(tmp_path, {}) == "docker"
    write(tmp_path, "run/.containerenv", "")
    assert box.container(tmp_path, {}) == "podman"


def test_this_box_is_read_without_a_word() -> None:
    found = box.read()
    assert found.python and found.cores and (found.system != "Linux" or found.shm_bytes)


@pytest.mark.parametrize(
    ("container", "size", "level", "words"),
    [
        ("docker", 64 << 20, "warning", "--shm-size=8g"),
        ("kubernetes", 64 << 20, "warning", "medium: Memory"),
        ("", 64 << 20, "warning", "mount -o remount"),
        ("docker", 8 << 30, "ok", ""),
        ("", None, "warning", "mount"),
    ],
)
def test_little_shared_memory_comes_with_the_flag_to_set(
    container: str, size: int | None, level: str, words: str
) -> None:
    found = check_shm(Facts(box=Box(container=container, shm_bytes=size)))[0]
    assert found.level == level and words in found.fix


def test_limits_matter_where_something_needs_them() -> None:
    assert check_limits(Facts(box=Box(files=256, files_hard=4096)))[0].level == "warning"
    assert check_limits(Facts(box=Box(files=1024, locked_bytes=8 << 20)))[0].level == "ok"
    assert check_limits(Facts(box=Box(locked_bytes=8 << 20, infiniband=["mlx5_0"])))[0].level == "warning"


def test_cards_are_found_on_the_bus(tmp_path: Path) -> None:
    for slot, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030200"),
        ("0000:02:00.0", "0x1002", "0x120000"),
        ("0000:03:00.0", "0x8086", "0x030000"),  # a processor's graphics
        ("0000:01:00.1", "0x10de", "0x040300"),  # a card's sound
    ):
        write(tmp_path, f"{slot}/vendor", vendor + "\n")
        write(tmp_path, f"{slot}/class", kind + "\n")
    (tmp_path / "drivers/nvidia").mkdir(parents=True)
    (tmp_path / "0000:01:00.0/driver").symlink_to(tmp_path / "drivers/nvidia")
    assert bus.read(tmp_path) == [BusCard("0000:01:00.0", "nvidia", "nvidia"), BusCard("0000:02:00.0", "amd", None)]
    assert bus.read(tmp_path / "nowhere") == []


# data


def test_a_folder_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    found = data_folder.read(str(tmp_path), skip=False)
    assert found.exists and found.readable and not found.empty and found.free_bytes and found.fs_type
    assert check_data(Facts(data=found))[0].level == "ok"


@pytest.mark.parametrize(
    ("data", "level"),
    [
        (DataPath("/d", declared=True), "error"),
        (DataPath("/flodl/data", declared=False), "warning"),
        (DataPath("/d", exists=True, readable=False), "error"),
        (DataPath("/d", exists=True, readable=True, empty=True), "warning"),
        (DataPath("/d", exists=True, hangs=True, fs_type="nfs4"), "error"),
        (DataPath("/d", skipped=True), "ok"),
    ],
)
def test_every_state_of_a_data_path_has_its_verdict(data: DataPath, level: str) -> None:
    assert check_data(Facts(data=data))[0].level == level


def test_a_mount_that_hangs_does_not_hang_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder, "_look", lambda _: signal.pause())
    monkeypatch.setattr(data_folder, "_PATIENCE", 0.5)
    assert data_folder.read(str(tmp_path), skip=False).hangs


def test_the_file_system_is_that_of_the_longest_mount_point(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nnas:/x /srv nfs4 rw 0 0\nbox /srv/my\\040data fuse.sshfs ro 0 0\nodd\n"
        "tmpfs /s tmpfs rw 0 0\n"
    )
    assert data_folder.fs_type("/srv/my data/set", mounts) == "fuse.sshfs"
    assert data_folder.fs_type("/srv/other", mounts) == "nfs4"
    assert data_folder.fs_type("/srvice", mounts) == "ext4"


@given(st.text(), st.text())
def test_no_table_of_mounts_upsets_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str, place: str) -> None:
    mounts = tmp_path_factory.getbasetemp() / "mounts"
    mounts.write_text(text, "utf-8", "surrogatepass")
    data_folder.fs_type(place, mounts)


# children


def test_what_crashes_hangs_or_raises_in_a_child_is_a_sentence() -> None:
    assert from_child(lambda: [1, "a"], 5) == [1, "a"]
    with pytest.raises(NoAnswer, match="signal 9"):
        from_child(lambda: os.kill(os.getpid(), signal.SIGKILL), 5)
    with pytest.raises(NoAnswer, match="failed: no"):
        from_child(lambda: (_ for _ in ()).throw(ValueError("no")), 5)
    with pytest.raises(NoAnswer) as hung:
        from_child(signal.pause, 0.2)
    assert hung.value.hung


# NVIDIA's libraries

SMI = """\
GPU-aaa, 1024, 0, 0x0000000000000000, 550.54.15, Disabled
GPU-bbb, [N/A], [N/A], 0x0000000000000048, 550.54.15, [N/A]
WARNING: infoROM is corrupted at gpu 0000:01:00.0
"""


def test_health_is_read_from_nvidia_smi_s_table() -> None:
    cards, driver = gpu_health.parse_cards(SMI)
    assert driver == "550.54.15"
    assert cards["GPU-aaa"] == {"used_bytes": 1 << 30, "ecc_uncorrected": 0, "throttle": [], "mig": False}
    assert [words[:8] for words in cards["GPU-bbb"]["throttle"]] == ["hardware", "too hot "]
    gpus = [Gpu(0, uuid="GPU-aaa"), Gpu(1, uuid=None)]
    gpu_health.apply(gpus, cards)
    assert (gpus[0].used_bytes, gpus[1].used_bytes) == (1 << 30, None)


def test_processes_are_read_from_nvidia_smi_s_table() -> None:
    text = "GPU-aaa, 4711, 300, /usr/bin/python, with a comma\nGPU-aaa, 12, [N/A], [Not Found]\n"
    text += "No running processes found\n"
    assert [(one.pid, one.used_bytes, one.name) for one in gpu_health.parse_processes(text)] == [
        (4711, 300 << 20, "/usr/bin/python, with a comma"),
        (12, None, "[Not Found]"),
    ]


@given(st.text())
def test_no_table_upsets_the_readers_of_health(text: str) -> None:
    gpu_health.parse_cards(text)
    gpu_health.parse_processes(text)


@given(
    st.lists(st.sampled_from(["GPU-a", "-1", "[N/A]", "0x", "99999999999999999999", "é", '"', "", "Enabled", "0x48"]))
)
def test_cells_in_any_order_are_no_crash(cells: list[str]) -> None:
    gpu_health.parse_cards(", ".join(cells))


def test_a_hanging_or_missing_nvidia_smi_is_no_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_health.nvidia_smi, "PATIENCE", 1.0)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_health.by_smi()[0] == {}
    tool.unlink()
    monkeypatch.setattr(gpu_health.nvidia_smi, "PLACES", ())
    assert gpu_health.by_smi()[0] == {}


class Cuda:
    """A stand-in for libcuda."""

    def __init__(self, code: int, count: int = 0) -> None:
        self.code, self.count = code, count

    def cuInit(self, _: int) -> int:
        return self.code

    def cuDeviceGetCount(self, target: Any) -> int:
        target._obj.value = self.count
        return 0

    def cuDriverGetVersion(self, target: Any) -> int:
        target._obj.value = 12080
        return 0


@pytest.mark.parametrize(
    ("library", "found"),
    [
        (Cuda(0, 2), (2, "12.8", "")),
        (Cuda(100), (0, "12.8", "")),
        (None, (None, None, "")),
    ],
)
def test_the_driver_library_is_counted(library: Cuda | None, found: object) -> None:
    assert cuda_driver.read(lambda: library) == found  # type: ignore[arg-type,return-value]


def test_a_driver_library_that_refuses_says_why() -> None:
    assert "fabricmanager" in cuda_driver.read(lambda: Cuda(802))[2]  # type: ignore[arg-type,return-value]


class Nvml:
    """A stand-in for libnvidia-ml with one sick card that somebody uses; `lacks` names functions an old one has not."""

    def __init__(self, *lacks: str) -> None:
        self.lacks = lacks

    def __getattr__(self, name: str) -> Any:
        if name in self.lacks:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            targets = [getattr(argument, "_obj", argument) for argument in arguments]
            if name == "nvmlSystemGetDriverVersion":
                targets[0].value = b"550.54.15"
            elif name == "nvmlSystemGetCudaDriverVersion_v2":
                targets[0].value = 12040
            elif name == "nvmlDeviceGetCount_v2":
                targets[0].value = 1
            elif name == "nvmlDeviceGetUUID":
                targets[1].value = b"GPU-a"
            elif name == "nvmlDeviceGetMemoryInfo":
                targets[1].total, targets[1].used, targets[1].free = 100, 30, 70
            elif name == "nvmlDeviceGetTotalEccErrors":
                targets[3].value = 7
            elif name == "nvmlDeviceGetCurrentClocksThrottleReasons":
                targets[1].value = 0x41
            elif name == "nvmlDeviceGetRemappedRows":
                targets[3].value = 1
            elif name == "nvmlDeviceGetComputeRunningProcesses_v3":
                targets[1].value = 1
                targets[2][0].pid, targets[2][0].used = os.getpid(), 1 << 20
            return 0

        return call


def test_health_by_nvml_is_read_with_used_and_free_memory_the_right_way_round() -> None:
    assert ctypes.sizeof(gpu_health._Process) == 24
    cards, processes, driver = gpu_health.read(lambda: Nvml())  # type: ignore[arg-type,return-value]
    assert cards["GPU-a"] == {
        "used_bytes": 30,
        "ecc_uncorrected": 7,
        "throttle": ["too hot (hardware)"],
        "remap_pending": True,
        "mig": False,
    }
    assert (driver.version, driver.cuda) == ("550.54.15", "12.4")
    assert [(one.gpu, one.used_bytes) for one in processes] == [("GPU-a", 1 << 20)] and processes[0].name


def test_an_older_nvml_leaves_gaps() -> None:
    old = Nvml("nvmlDeviceGetRemappedRows", "nvmlDeviceGetMigMode", "nvmlDeviceGetComputeRunningProcesses_v3")
    cards, processes, _ = gpu_health.read(lambda: old)  # type: ignore[arg-type,return-value]
    assert set(cards["GPU-a"]) == {"used_bytes", "ecc_uncorrected", "throttle"} and processes == []


# NCCL


@pytest.mark.parametrize(("code", "version"), [(22705, "2.27.5"), (2708, "2.7.8"), (21903, "2.19.3"), (20905, "2.9.5")])
def test_nccl_s_number_is_spelled_out(code: int, version: str) -> None:
    assert nccl_library.spelled(code) == version


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler here: apt install gcc")
def test_the_library_that_would_be_loaded_comes_first_and_is_asked(tmp_path: Path) -> None:
    def library(folder: str, code: str) -> Path:
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "libnccl.so.2"
        (tmp_path / "n.c").write_text(f"int ncclGetVersion(int* v) {{ {code} }}")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, tmp_path / "n.c"], check=True)
        return path

    ours, system = library("ours", "*v = 22809; return 0;"), library("system", "*v = 22705; return 0;")
    broken = library("broken", "return 3;")
    env = {"LD_PRELOAD": f"/x/libother.so:{ours}", "LD_LIBRARY_PATH": f":{broken.parent}"}
    found = nccl_library.read(env, None, None, [str(system.parent), str(ours.parent)])
    assert [(one.path, one.source, one.version) for one in found] == [
        (str(ours), "LD_PRELOAD", "2.28.9"),
        (str(broken), "LD_LIBRARY_PATH", None),
        (str(system), "system", "2.27.5"),
    ]
    assert "ncclGetVersion says 3" in found[1].why
    assert nccl_library.version("/no/libnccl.so.2") == (None, "there is no such file")


# tools


def test_our_tools_are_found_as_the_fan_out_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, home = tmp_path / "p", tmp_path / "h"
    for folder in (project / ".venv/bin", home / ".local/bin"):
        folder.mkdir(parents=True)
        (folder / "flodl-x").write_text("")
        (folder / "flodl-x").chmod(0o755)
    monkeypatch.setenv("SHELL", "/bin/sh")
    assert tools.find(["flodl-x"], project, home)["flodl-x"] == str(project / ".venv/bin/flodl-x")
    assert tools.find(["flodl-x"], None, home)["flodl-x"] == str(home / ".local/bin/flodl-x")
    assert tools.find(["flodl-y", "no-such-tool"], None, home) == {"flodl-y": None, "no-such-tool": None}


def test_a_missing_tool_is_an_error_with_its_install_line() -> None:
    box_here = Box(manager="dnf", root=True)
    asked = Question(role="walk-in", tools=["sshfs"])
    found = check_tools(Facts(asked, box=box_here, tools={"sshfs": None, "ssh": "/usr/bin/ssh"}))
    assert [(one.level, one.fix) for one in found] == [("error", "dnf install fuse-sshfs")]


def test_the_project_must_be_there_and_the_same() -> None:
    asked = Question(role="worker", path="/p", manifest_hash="a")
    assert check_project(Facts(asked))[0].what == "there is no folder /p"
    assert check_project(Facts(asked, project="/p", manifest_hash=""))[0].why == "it holds no fdl.yml"
    assert check_project(Facts(asked, project="/p", manifest_hash="b"))[0].level == "error"
    assert check_project(Facts(asked, project="/p", manifest_hash="a"))[0].level == "ok"


def test_a_container_s_host_needs_an_engine_compose_and_the_toolkit() -> None:
    asked = Question(docker="cuda")
    assert check_docker(Facts(asked, docker=Docker(why="docker is not installed")))[0].fix.endswith(
        "system's package manager"
    )
    assert "usermod" in check_docker(Facts(asked, docker=Docker(why="permission denied")))[0].fix
    bare = Facts(asked, docker=Docker("27.0"), gpus=[Gpu(0)])
    assert [one.level for one in check_docker(bare)] == ["error", "warning"]
    assert check_docker(Facts(asked, docker=Docker("27.0", "", True, True)))[0].level == "ok"


def test_an_engine_is_asked_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "docker"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tool.write_text('#!/bin/sh\n[ "$1" = version ] && { echo 27.0.3; exit 0; }\necho "no compose" >&2; exit 1\n')
    tool.chmod(0o755)
    assert docker_engine.read() == Docker("27.0.3", "", False, False)
    tool.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    assert docker_engine.read().why == "Cannot connect to the Docker daemon"


# deep


def test_what_the_deep_run_prints_is_found_among_other_words() -> None:
    line = b'hello\nflodl-deep:{"version":"2.13.0","devices":[{"index":0,"name":"C","good":true}],"reduce":""}\n'
    assert deep_run.understand(line, b"", 0).devices[0].good
    assert deep_run.understand(b"", b"Traceback\nModuleNotFoundError: No module named 'torch'\n", 1).failure.endswith(
        "'torch'"
    )
    assert "signal 11" in deep_run.understand(b"flodl-deep:{", b"", -11).failure


def test_a_deep_run_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(deep_run, "SCRIPT", script)
    assert "no answer in 1 s" in deep_run.read(None, {}, None, 1.0).failure


def test_without_torch_the_deep_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = deep_run.read(None, {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}, None, 60) if not _torch() else None
    assert found is None or "torch" in found.failure


def _torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None

"""A worker that boots: user-data that cloud-init takes and a shell can run, a unit that systemd takes."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from flodl_cli.join_config.cloud_init import cloud_init
from flodl_cli.join_config.farm import DOORS, Controller, Farm
from flodl_cli.join_config.unit import unit

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU=\n-----END OPENSSH PRIVATE KEY-----\n"


def farm(door: str = "b") -> Farm:
    return Farm(
        label="lab", root="/p", controller=Controller("me", "desk", 2222), door=door, token="ab" * 16,
        public_key="ssh-ed25519 AAAA x", served="/srv/run", data="/flodl/data",
    )  # fmt: skip


@pytest.mark.parametrize("door", list(DOORS))
def test_the_user_data_is_what_cloud_init_takes(tmp_path: Path, door: str) -> None:
    if shutil.which("cloud-init") is None:
        pytest.skip("no cloud-init here: apt install cloud-init")
    file = tmp_path / "user-data"
    file.write_text(cloud_init(farm(door), KEY))
    done = subprocess.run(["cloud-init", "schema", "--config-file", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_is_what_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here: apt install systemd")
    for folder in ("etc/systemd/system", "opt/flodl/bin", "srv/flodl/lab"):
        (tmp_path / folder).mkdir(parents=True)
    fdl = tmp_path / "opt/flodl/bin/fdl"
    fdl.write_text("#!/bin/sh\n")
    fdl.chmod(0o755)
    text = unit(farm()).replace("/opt/flodl", f"{tmp_path}/opt/flodl")  # it looks whether the program is there
    file = tmp_path / "flodl-join-lab.service"
    file.write_text(text)
    words = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_stops_at_2_and_never_at_a_fast_series_of_restarts() -> None:
    read = configparser.ConfigParser(comment_prefixes=("#",))
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(unit(farm()))
    service = read["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"], service["KillMode"]) == ("always", "2", "mixed")
    assert (read["Unit"]["FailureAction"], read["Unit"]["StartLimitIntervalSec"]) == ("poweroff", "0")
    assert service["ExecStart"].endswith("fdl join --persist")


@pytest.mark.parametrize("image", ["bare", "with flodl"])
def test_a_shell_runs_what_the_user_data_orders_once_and_again(tmp_path: Path, image: str) -> None:
    """Its own lines, below a folder of ours, with stand-ins that write down what they are told."""
    data = yaml.safe_load(cloud_init(farm(), KEY))
    for each in data["write_files"]:
        target = tmp_path / each["path"].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(each["content"])
        target.chmod(int(each["permissions"], 8))
    tools, log = tmp_path / "tools", tmp_path / "log"
    tools.mkdir()
    for name in ("useradd", "usermod", "systemctl", "chown", "id", "getent"):
        answer = {"id": '[ -e "$STATE" ]', "useradd": ': > "$STATE"', "getent": '[ "$2" = video ]'}.get(name, ":")
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\n{answer}\n')
    pip = (
        f'#!/bin/sh\necho pip "$@" >> {log}\n: > {tmp_path}/opt/flodl/bin/fdl; chmod +x {tmp_path}/opt/flodl/bin/fdl\n'
    )
    (tmp_path / "pip").write_text(pip)
    make = f'mkdir -p "$3/bin" && cp {tmp_path}/pip "$3/bin/pip" && chmod +x "$3/bin/pip"'
    (tools / "python3").write_text(f'#!/bin/sh\necho python3 "$@" >> {log}\n{make}\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    if image == "with flodl":
        (tmp_path / "opt/flodl/bin").mkdir(parents=True)
        (tmp_path / "opt/flodl/bin/fdl").touch(mode=0o755)
    script = "\n".join(data["runcmd"]).replace("/srv/", f"{tmp_path}/srv/").replace("/opt/", f"{tmp_path}/opt/")
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "STATE": str(tmp_path / "user-is-there")}
    for _ in range(2):
        done = subprocess.run(["sh", "-e", "-c", script], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    said = log.read_text().replace(str(tmp_path), "").splitlines()
    assert said.count("useradd --system --home-dir /srv/flodl --shell /usr/sbin/nologin flodl") == 1
    installs = "pip install flodl-cli flodl-agent flodl-publish flodl-planes[torch]"
    assert said.count(installs) == (0 if image == "with flodl" else 1)
    assert "usermod -a -G video flodl" in said and "usermod -a -G render flodl" not in said
    assert said[-1] == "systemctl enable --now flodl-join-lab.service"
    key = tmp_path / "srv/flodl/.flodl/lab/join_key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.parent.stat().st_mode & 0o777 == 0o700

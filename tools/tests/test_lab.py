"""The lab itself: hosts that are apart, reach each other by ssh, and leave nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.lab import Lab, Link, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no lab here: {missing()}")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab({"desk": Link(), "tower": Link(), "attic": Link(rate="50mbit", delay_s=0.02)}) as hosts:
        yield hosts


def test_each_host_has_its_own_name_home_and_boot_id(lab: Lab) -> None:
    ask = "hostname; echo $HOME; cat /proc/sys/kernel/random/boot_id"
    answers = [lab.run(host, "sh", "-c", ask).stdout.split() for host in lab.hosts]
    assert [answer[:2] for answer in answers] == [[name, str(lab.home(name))] for name in ("desk", "tower", "attic")]
    assert len({answer[2] for answer in answers}) == 3


def test_every_host_reaches_every_other_by_ssh_without_a_question(lab: Lab) -> None:
    for here, there in (("desk", "tower"), ("tower", "attic")):
        done = lab.run(here, "ssh", "-o", "BatchMode=yes", there, "hostname; echo $HOME; pwd; echo ~")
        assert done.stdout.split() == [there, *[str(lab.home(there))] * 3], done.stderr


def test_an_sshd_sets_what_it_is_told_beside_what_every_host_is_given(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "512")
    lab.sshd("tower", 2222, "SetEnv=PATH=/of/this/one:/usr/bin:/bin")
    done = lab.run("desk", "ssh", "-p", "2222", "-o", "HostKeyAlias=tower", "tower", "echo $PATH $OPENBLAS_L2_SIZE")
    assert done.stdout.split() == ["/of/this/one:/usr/bin:/bin", "512"], done.stderr


def test_an_exit_code_and_stdin_pass_through(lab: Lab) -> None:
    done = lab.run("tower", "sh", "-c", "cat; exit 7", input="hello")
    assert (done.returncode, done.stdout) == (7, "hello")


def test_the_pid_of_a_started_process_is_its_own(lab: Lab) -> None:
    process = lab.popen("tower", "sleep", "infinity")
    assert process.pid in lab.pids("tower")
    process.kill()
    assert process.wait(5) == -signal.SIGKILL


ECHO = """
import socket
server = socket.create_server(("", 5000)); print()
link = server.accept()[0]; link.sendall(link.recv(9)); link.recv(9)
"""
PING = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], 5000)); began = time.monotonic(); link.sendall(b"x"); link.recv(9)
print(time.monotonic() - began)
"""


def test_a_delayed_link_delays_each_way_and_a_plain_one_does_not(lab: Lab) -> None:
    def round_trip(host: str) -> float:
        with lab.popen(host, sys.executable, "-uc", ECHO, stdout=subprocess.PIPE) as server:
            assert server.stdout and server.stdout.readline()
            return float(lab.run("desk", sys.executable, "-c", PING, lab.address(host)).stdout)

    assert 0.04 <= round_trip("attic") < 0.2
    assert round_trip("tower") < 0.02


def test_a_shaped_link_carries_its_rate(lab: Lab) -> None:
    size = 2_500_000  # 0.4 s at 50 Mbit/s
    began = time.monotonic()
    done = lab.run("desk", "ssh", "attic", f"head -c {size} /dev/zero", text=False)
    spent = time.monotonic() - began
    assert len(done.stdout) == size
    assert 0.35 < spent < 5


def test_a_cut_link_loses_everything_and_heals(lab: Lab) -> None:
    ask = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=1", "tower", "true"]
    lab.cut("tower")
    assert lab.run("desk", *ask).returncode == 255
    lab.heal("tower")
    assert lab.run("desk", *ask[:4], "ConnectTimeout=20", *ask[5:]).returncode == 0


def test_two_labs_at_once_do_not_meet_and_nothing_of_them_stays(lab: Lab) -> None:
    with Lab(["desk", "tower"]) as other:
        assert other.address("tower") == lab.address("tower")
        done = other.run("desk", "ssh", "tower", "echo $HOME")
        assert done.stdout.strip() == str(other.home("tower")), done.stderr
        started = other.popen("tower", "sleep", "infinity")
    assert started.wait(5) == -signal.SIGKILL
    assert not other.folder.exists()
    names = subprocess.run("ip netns list; ip link", shell=True, capture_output=True, text=True).stdout
    assert other.tag not in names


def test_a_lab_whose_owner_was_killed_is_swept_up_by_the_next() -> None:
    code = """
import sys
from tools.lab import Lab
lab = Lab(["desk"]).__enter__(); print(lab.tag, flush=True); sys.stdin.read()"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout
        tag = owner.stdout.readline().strip()
        owner.kill()
    assert tag in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    with Lab(["desk"]):
        assert tag not in subprocess.run("ip netns list; ip link", shell=True, capture_output=True, text=True).stdout


def test_by_hand_the_hosts_stay_until_down(tmp_path: Path) -> None:
    def lab_command(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools.lab", "--folder", str(tmp_path / "l"), *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    assert lab_command("up", "desk", "tower").stdout == "desk 10.77.0.1  tower 10.77.0.2\n"
    try:
        assert lab_command("run", "desk", "--", "ssh", "tower", "hostname").stdout == "tower\n"
    finally:
        assert lab_command("down").returncode == 0
    assert "no lab is up" in lab_command("run", "desk", "--", "true").stderr

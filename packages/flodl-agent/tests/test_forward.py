"""A walk-in's forward through a real sshd whose key may do nothing else."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from agent_fakes import alive, wait_gone
from agent_sshd import Sshd

from flodl_agent import forward
from flodl_agent.forward import Forward
from flodl_wire.address import Address
from flodl_wire.config import Ssh
from flodl_wire.faults import Fault, Refused


def guard(port: int) -> str:
    """The restrictions of a join key."""
    return f'restrict,port-forwarding,permitopen="127.0.0.1:{port}",command="/usr/sbin/nologin"'


@pytest.fixture
def door() -> Iterator[int]:
    """Something that answers what a window would be asked first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with closing(sock):
                    sock.sendall(b"echo " + sock.recv(4096))

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=["ssh", "sshtunnel"])
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Either with OpenSSH, or on a box that has no `ssh`."""
    if request.param == "sshtunnel":
        monkeypatch.setattr(forward, "ssh_program", lambda: None)
        monkeypatch.setenv("HOME", str(tmp_path))
    return str(request.param)


def fault_of(ssh: Ssh, port: int) -> Fault:
    with pytest.raises(Fault) as caught, Forward(ssh, Address("127.0.0.1", port)):
        pass
    return caught.value


def test_a_guarded_key_leads_to_the_controller(carrier: str, sshd: Sshd, door: int) -> None:
    sshd.authorize(guard(door))
    with Forward(sshd.road(), Address("127.0.0.1", door)) as port:
        assert port != door
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"hello")
            assert sock.recv(100) == b"echo hello"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize("restrictions", ["restrict", 'restrict,port-forwarding,permitopen="127.0.0.1:9"'])
def test_a_key_that_may_not_forward_there_is_told_so_with_the_option(
    carrier: str, sshd: Sshd, door: int, restrictions: str
) -> None:
    sshd.authorize(restrictions)
    fault = fault_of(sshd.road(), door)
    assert fault.code == "forward-forbidden" and f'permitopen="127.0.0.1:{door}"' in fault.fix, fault.render()


def test_nothing_behind_it_is_told_as_seen_from_there(carrier: str, sshd: Sshd, free_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    fault = fault_of(sshd.road(), port)
    assert fault.code == "refused" and f"as seen from there nothing listens at 127.0.0.1:{port}" in str(fault)


def test_a_controller_that_comes_later_is_found_through_it(sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = held.getsockname()

    def come() -> None:
        with socket.create_server(address) as listener:
            sock, _ = listener.accept()
            sock.recv(1000)
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            sock.close()

    later = threading.Timer(0.7, come)
    later.start()
    with Forward(sshd.road(), Address(*address)):
        pass
    later.join()


def test_a_key_that_is_not_let_in_shows_ssh_s_own_words(carrier: str, sshd: Sshd, door: int) -> None:
    (sshd.root / "authorized").write_text("")
    fault = fault_of(sshd.road(), door)
    assert fault.code == "ssh-denied" and "Permission denied" in str(fault) and "ssh -v -N -p" in fault.fix


def test_a_changed_host_key_is_never_taken(carrier: str, sshd: Sshd, door: int) -> None:
    other = (sshd.root / "user.pub").read_text()
    (sshd.root / "known").write_text(f"[127.0.0.1]:{sshd.port} {other}")
    before = (sshd.root / "known").read_bytes()
    fault = fault_of(sshd.road(), door)
    assert fault.code == "host-key-changed", fault.render()
    assert f"ssh-keygen -f {sshd.root / 'known'} -R '[127.0.0.1]:{sshd.port}'" in fault.fix
    assert (sshd.root / "known").read_bytes() == before


def test_an_unknown_host_key_is_taken_once_and_held_to_then(carrier: str, sshd: Sshd, door: int) -> None:
    (sshd.root / "known").unlink()
    for _ in range(2):
        with Forward(sshd.road(), Address("127.0.0.1", door)):
            pass
    (line,) = [line for line in (sshd.root / "known").read_text().splitlines() if "ed25519" in line]
    assert (sshd.root / "host.pub").read_text().split()[1] in line


def test_a_closed_sshd_is_told_from_a_closed_controller(carrier: str, door: int, free_port: int) -> None:
    fault = fault_of(Ssh("127.0.0.1", free_port), door)
    assert (fault.code, fault.what) == ("refused", f"cannot reach the sshd of 127.0.0.1:{free_port}")


def test_a_key_file_that_others_may_read_is_refused_before_anybody_is_dialled(sshd: Sshd, door: int) -> None:
    (sshd.root / "user").chmod(0o644)
    fault = fault_of(sshd.road(), door)
    assert isinstance(fault, Refused) and fault.fix == f"chmod 600 {sshd.root / 'user'}"
    assert "no such file" in str(fault_of(sshd.road(key="not-there"), door))


def test_a_login_that_takes_its_time_is_waited_for(sshd: Sshd, door: int, tmp_path: Path) -> None:
    """A tenth of the eight seconds that one field case asks for, with a tenth of the patience."""
    slow = f"ProxyCommand=sh -c 'sleep 0.8; exec nc 127.0.0.1 {sshd.port}'"
    if not shutil.which("nc"):
        slow = f"ProxyCommand=sh -c 'sleep 0.8; exec ssh -F none -i {sshd.root / 'user'} -p {sshd.port} " \
            f"-o UserKnownHostsFile={sshd.root / 'known'} -W %h:%p 127.0.0.1'"  # fmt: skip
    with Forward(sshd.road(slow), Address("127.0.0.1", door)):
        pass


def test_a_road_that_never_opens_has_its_end(door: int) -> None:
    fault = fault_of(Ssh("127.0.0.1", options=["ProxyCommand=sleep 60"]), door)
    assert fault.code == "ssh-slow" and "not ready within 5 s" in str(fault)


@pytest.mark.parametrize(
    "option", ["ProxyJump=gate", "ProxyCommand nc %h %p", "StrictHostKeyChecking=no", "Cipher=none", "nonsense"]
)
@pytest.mark.parametrize("carrier", ["sshtunnel"], indirect=True)
def test_an_option_that_only_ssh_knows_is_refused_where_there_is_none(carrier: str, door: int, option: str) -> None:
    """Left out in silence, it would dial past the gate, or trust whom it should not."""
    fault = fault_of(Ssh("127.0.0.1", options=["ConnectTimeout=5", option]), door)
    assert isinstance(fault, Refused) and repr(option) in fault.what and "openssh-client" in fault.fix


@pytest.mark.parametrize("carrier", ["sshtunnel"], indirect=True)
def test_a_proxy_in_the_config_of_ssh_is_not_dialled_past(carrier: str, door: int, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host box\n  ProxyJump gate\nHost free\n  ProxyJump none\n")
    fault = fault_of(Ssh("box"), door)
    assert isinstance(fault, Refused) and "proxyjump" in fault.what and ".ssh/config" in fault.what
    assert not isinstance(fault_of(Ssh("free", 9), door), Refused)


def test_whom_to_dial_may_stand_in_the_options(carrier: str, sshd: Sshd, door: int) -> None:
    road = sshd.road()
    more = ["HostName=127.0.0.1", f"Port={sshd.port}", f"IdentityFile={road.identity_file}", f"User={road.user}"]
    with Forward(Ssh("box", options=[*road.options, *more]), Address("127.0.0.1", door)):
        pass


def test_the_ssh_of_a_killed_join_dies_with_it(sshd: Sshd, door: int) -> None:
    """And nothing that it started stays."""
    mark = f"forward-mark-{door}-"
    program = (
        "import sys, time\nfrom flodl_agent.forward import Forward\nfrom flodl_wire.address import Address\n"
        f"from flodl_wire.config import Ssh\nroad = {sshd.road()!r}\n"
        f"with Forward(road, Address('127.0.0.1', {door})):\n    print('up', flush=True)\n    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE,
        env={**os.environ, "MARK": mark}, text=True,
    )  # fmt: skip
    assert process.stdout and process.stdout.readline() == "up\n"
    assert len(alive(mark)) >= 2
    process.kill()
    process.wait()
    process.stdout.close()
    wait_gone(mark)

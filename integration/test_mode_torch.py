"""Mode torch: scripts that know torchrun's environment and nothing of flodl, their rendezvous through the one port.

Torch is loaded where it is the point (18 times in all); elsewhere ranks are a client that speaks the store's words.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
from pathlib import Path

import pytest
from integration.cluster import PORT, Cluster
from integration.conftest import Make
from integration.processes import Process
from integration.project import rank_command
from integration.running import Running
from integration.until import until

SCRIPT = Path(__file__).resolve().parents[1] / "docs" / "examples" / "torchrun_plain.py"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}

# What a TCPStore client says first (torch 2.13): VALIDATE with its magic number, PING with any number.
RAW = struct.pack("<BI", 0, 0x3C85F7CE) + struct.pack("<BI", 13, 4711)
STRANGER = f"""
import socket, sys
sock = socket.create_connection((sys.argv[1], {PORT}), 10)
sock.sendall({RAW!r})
try:
    print(sock.recv(100))
except ConnectionResetError:
    print(b"")
"""


def torch(command: str, **more: object) -> dict[str, object]:
    return {"run": command, "mode": "torch", **more}


def store_rank(*words: str) -> dict[str, object]:
    return torch(rank_command("store_rank.py", *words))


def stores(processes: list[Process]) -> list[Process]:
    return [process for process in processes if "flodl_planes.hub.store_server" in process.argv]


def memory(process: Process) -> int:
    """Resident, in KiB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def past_the_barrier(run: Running, ranks: int = 2) -> None:
    for rank in range(ranks):
        run.line(rf"rank {rank} is past the barrier", within=60)


# three hosts


def test_a_plain_ddp_script_trains_on_three_hosts_one_of_them_behind_an_ssh_forward(cluster: Cluster) -> None:
    """attic reaches desk's port only through `ssh -L`: there, the name desk means 127.0.0.1."""
    lab = cluster.lab
    for folder in cluster.folders.values():
        shutil.copy(SCRIPT, folder)
    overlay = cluster.overlay()
    overlay["controller"]["host"] = "desk"
    cluster.write({"plain": torch("python torchrun_plain.py --steps 20 --again")}, overlay)
    desk, attic = lab.address("desk"), lab.home("attic")
    forward = f"{PORT}:{desk}:{PORT}"
    tunnel = lab.popen("attic", "ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-L", forward, desk)
    try:
        (attic / "hosts").write_text((attic / "hosts").read_text().replace(f"{desk} desk", "127.0.0.1 desk"))
        until(lambda: f":{PORT} " in lab.run("attic", "ss", "-ltn").stdout, 20)
        run = cluster.start("@cluster", "plain", env=ONE_THREAD)
        state = run.phase("training")
        addresses = {member.host: member.address for member in state.members}
        assert (addresses["tower"], addresses["attic"]) == (lab.address("tower"), desk)
        stranger = lab.run("tower", "python3", "-c", STRANGER, desk)
        assert stranger.stdout == "b''\n", stranger.stdout
        run.done(within=120)
        for host, rank in (("tower", 0), ("tower", 1), ("attic", 2)):
            said = [line for line in run.out if line.startswith(f"[{host}:{rank}] rank {rank} of 3: ")]
            assert len(said) == 2 and all(line.endswith("parameters agree") for line in said), run.text
        until(lambda: not stores(cluster.inventory()), 5)
    finally:
        tunnel.terminate()
        tunnel.wait(10)


def test_groups_objects_meshes_and_a_second_group_work_across_three_hosts(cluster: Cluster) -> None:
    cluster.write({"every": torch(rank_command("every_collective.py"))})
    run = cluster.start("@cluster", "every", env=ONE_THREAD)
    run.done(within=120)
    for host, rank in (("tower", 0), ("tower", 1), ("attic", 2)):
        run.line(rf"^\[{host}:{rank}\] rank {rank} of 3 did all of it twice", within=1)
    run.nothing_left(10)


# the store: when it is there, and who is kept out


def test_a_script_that_needs_no_store_starts_none(project: Make) -> None:
    made = project(say=torch(rank_command("say.py", "--stay", "-1:")))
    run = made.start("@one", "say")
    run.phase("training")
    run.line(r'\[.*:1\] {"rank": 1')
    assert not stores(run.inventory())
    run.interrupt()
    assert run.wait() == 130
    assert "store" not in run.text


def test_the_store_starts_with_its_first_use_a_flood_costs_nothing_and_its_death_is_named(project: Make) -> None:
    made = project(store=store_rank("barrier", "hang"))
    run = made.start("@one", "store")
    past_the_barrier(run)
    (store,) = stores(run.inventory())
    (launcher,) = run.processes("launcher")
    (hub,) = run.processes("hub")
    before = {process: memory(process) for process in (launcher, hub, store)}

    key = struct.pack("<Q", 5) + b"/flat"
    junk = RAW + b"\x01" + key + struct.pack("<Q", 8 << 20) + bytes(1 << 20)  # SET of 8 MiB
    sealed = bytes.fromhex("f10d1fd1000103") + b"\x01" + os.urandom(48) + bytes(1 << 16)  # the right preface, no key
    for _ in range(40):
        assert _answer(made.port, junk) == b""
        assert len(_answer(made.port, sealed)) <= 8, "a refusal, or nothing"
    crowd = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(100)]
    for link in crowd:
        link.sendall(sealed[:8])  # and then silence
    assert made.fdl("status", "--json", "--addr", f"127.0.0.1:{made.port}").returncode == 0
    for link in crowd:
        link.close()
    grown = {process.role: memory(process) - before[process] for process in before}
    assert max(grown.values()) < 20 * 1024, grown

    store.kill()
    run.failed(within=30)
    assert "the ranks' rendezvous store is gone: its process was killed by signal 9" in run.text
    run.nothing_left(10)


def test_a_controller_without_torch_fails_the_run_with_one_sentence_and_its_fix(project: Make, tmp_path: Path) -> None:
    """A box that only coordinates, played by a torch that cannot be imported; the ranks here need none."""
    (tmp_path / "none" / "torch").mkdir(parents=True)
    words = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    (tmp_path / "none" / "torch" / "__init__.py").write_text(words)
    made = project(store=store_rank("barrier"))
    run = made.start("@one", "store", env={"PYTHONPATH": str(tmp_path / "none")})
    run.failed(within=30)
    assert "cannot serve the ranks' rendezvous" in run.text
    assert "its Python does not load it (No module named 'torch')" in run.text
    assert "-m pip install 'flodl-planes[torch]'" in run.text
    run.nothing_left(10)


# how runs end


def test_a_rank_that_exits_3_fails_the_run_while_the_others_wait_in_the_store(project: Make) -> None:
    made = project(store=store_rank("barrier", "exit:1:3", "hang"))
    run = made.start("@one", "store")
    state = run.failed(within=60)  # rank 1 leaves behind the barrier, when rank 0 has come to it
    assert state.cause and (state.cause.rank, "exit 3" in state.cause.what) == (1, True), state.cause
    run.nothing_left(10)


def test_a_rank_that_exits_3_is_named_and_not_those_that_gloo_takes_down_with_it(project: Make) -> None:
    made = project(leave=torch(rank_command("every_collective.py", "--exit", "1:3")))
    run = made.start("@one", "leave", env=ONE_THREAD)
    assert run.wait(90) == 1
    state = run.state()
    # rank 0 falls by gloo's "Connection closed by peer" within the same moment, and is told of before or behind rank 1
    assert state and state.cause and (state.cause.rank, "exit 3" in state.cause.what) == (1, True), state
    run.nothing_left(10)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_fails_the_run_by_name(project: Make, victim: int) -> None:
    made = project(store=store_rank("barrier", "hang"))
    run = made.start("@one", "store")
    past_the_barrier(run)
    ranks = sorted(run.processes("rank", 2), key=lambda process: process.pid)
    ranks[victim].kill(signal.SIGKILL)
    state = run.failed(within=20)
    assert state.cause and (state.cause.rank, "signal 9" in state.cause.what) == (victim, True), state.cause
    run.nothing_left(10)


@pytest.mark.parametrize("victim", ["hub", "launcher"])
def test_the_store_does_not_outlive_who_started_it(project: Make, victim: str) -> None:
    made = project(store=store_rank("barrier", "hang"))
    run = made.start("@one", "store")
    past_the_barrier(run)
    run.processes(victim)[0].kill()
    assert run.wait(20) != 0
    run.nothing_left(10)


def test_ctrl_c_in_a_barrier_leaves_nothing(project: Make) -> None:
    made = project(store=store_rank("barrier", "hang"))
    run = made.start("@one", "store")
    past_the_barrier(run)
    run.interrupt()
    assert run.wait(20) == 130
    run.nothing_left(10)
    assert "Traceback" not in run.text


def _answer(port: int, data: bytes) -> bytes:
    """What comes back for `data` before the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as link:
        try:
            link.sendall(data)
            return link.recv(100)
        except ConnectionError:
            return b""

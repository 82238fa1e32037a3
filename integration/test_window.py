"""The window across hosts: tunnels, the held start, and what somebody on the wire can read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from integration.cluster import PORT, Cluster
from integration.project import BIN, Project, rank_command
from integration.proxy import Proxy
from integration.running import Running
from integration.until import until

from flodl_wire.devices import CpuDevices
from flodl_wire.specs import AgentSpec

PLAIN = {"run": rank_command("plain_rank.py", "--epochs", "4"), "mode": "cpu_cadence"}
TOKEN = "5eed" * 8
FDL = BIN / "fdl"


# tunnels


def test_a_world_of_tunnels_needs_no_port_but_sshs(cluster: Cluster) -> None:
    overlay = cluster.overlay(tunnel=True)
    cluster.write({"train": PLAIN}, overlay)
    run = cluster.start("@cluster", "train")
    run.phase("training")
    desk = cluster.lab.address("desk")
    for host in ("tower", "attic"):
        probe = f"import socket; socket.create_connection(({desk!r}, {PORT}), 2)"
        refused = cluster.lab.run(host, sys.executable, "-c", probe)
        assert "ConnectionRefusedError" in refused.stderr, "the port is bound to loopback alone"
    state = run.done()
    assert [(member.host, member.road, member.address) for member in state.members] == [
        ("tower", "tunnel", "127.0.0.1"),
        ("attic", "tunnel", "127.0.0.1"),
    ]
    assert run.result()["samples"] == 4 * 240
    run.nothing_left(10)


def test_one_host_may_tunnel_while_another_comes_over_the_network(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    overlay["workers"][1]["tunnel"] = True
    cluster.write({"train": PLAIN}, overlay)
    state = cluster.start("@cluster", "train").done()
    assert [member.road for member in state.members] == ["ssh", "tunnel"]


def test_a_tunnel_that_cannot_be_is_refused_before_anything_starts(cluster: Cluster) -> None:
    overlay = cluster.overlay(tunnel=True)
    cluster.write({"train": {**PLAIN, "mode": "torch"}}, overlay)
    run = cluster.start("@cluster", "train")
    assert run.wait() == 1
    assert "cluster.workers[0].tunnel" in run.text and "past any tunnel" in run.text
    assert not (cluster.folder / "runs").exists()


# the held start


def test_the_operator_holds_the_roster_and_fires_from_another_box_with_the_token(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    overlay["controller"]["join"] = {"start": "manual", "token": TOKEN}
    cluster.write({"train": PLAIN}, overlay)
    run = cluster.start("@cluster", "train")
    desk = cluster.lab.address("desk")
    waited = cluster.lab.run("tower", FDL, "status", "--addr", desk, "--wait", "staging", "--timeout", "40")
    assert waited.returncode == 0, waited.stderr + run.text
    shown = cluster.lab.run("attic", FDL, "status", "--addr", desk).stdout
    assert "roster startable, fire with `fdl start`" in shown and "gives up in" in shown
    for words, why in (((), "--token"), (("--token", "ab" * 16), "token")):
        refused = cluster.lab.run("attic", FDL, "start", "--addr", desk, *words)
        assert refused.returncode == 1 and why in refused.stderr, refused
    held = run.state()
    assert held and held.phase == "staging"
    fired = cluster.lab.run("attic", FDL, "start", "--addr", desk, "--token", TOKEN)
    assert fired.returncode == 0 and "3 ranks" in fired.stdout, fired
    run.done()
    assert TOKEN not in run.text and TOKEN not in json.dumps(msgspec.to_builtins(run.state()))


def test_on_the_controllers_box_no_token_is_needed(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    overlay["controller"]["join"] = {"start": "hybrid", "min_rank_start": 3, "target_ranks": 4, "token": TOKEN}
    cluster.write({"train": PLAIN}, overlay)
    run = cluster.start("@cluster", "train")
    run.phase("staging")
    fired = cluster.lab.run("desk", FDL, "start", "--addr", "127.0.0.1", cwd=cluster.lab.home("desk"))
    assert fired.returncode == 0, fired
    assert fired.stdout.startswith("start armed")
    run.done()
    late = cluster.fdl("@cluster", "start")
    assert late.returncode == 1


# what can be read on the wire


@pytest.fixture
def tapped(tmp_path: Path, free_port: int) -> Iterator[tuple[Project, Proxy]]:
    tap = Proxy(free_port)
    made = Project(tmp_path / "project", free_port, {}, 1)
    yield made, tap
    tap.close()
    made.end()


def agent(made: Project, host: str, port: int) -> subprocess.Popen[bytes]:
    """An agent started by hand, as any script might."""
    spec = AgentSpec(
        host, "127.0.0.1", port, TOKEN, CpuDevices(1), path=str(made.folder), roster_host=True
    )  # fmt: skip
    process = subprocess.Popen(
        [BIN / "flodl-agent", "run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=made.folder,
        env=made.environment(),
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec) + b"\n")
    process.stdin.flush()
    return process


def test_no_parameter_and_no_token_can_be_read_on_the_wire(tapped: tuple[Project, Proxy]) -> None:
    made, tap = tapped
    worker: dict[str, Any] = {"local_devices": "cpu:1", "path": str(made.folder), "nccl_socket_ifname": "lo"}
    controller = {"host": "127.0.0.1", "port": made.port, "path": str(made.folder), "join": {"token": TOKEN}}
    workers = [{**worker, "host": host} for host in ("one", "two")]
    made.write("c.json", {"cluster": {"controller": controller, "workers": workers}})
    numbers = 100_000
    command = rank_command("plain_rank.py", "--epochs", "2", "--numbers", str(numbers)).split()
    process = subprocess.Popen(
        [BIN / "flodl-window", "serve", "--config", "c.json", "--mode", "cpu_sync", "--", *command],
        cwd=made.folder,
        env=made.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = Running(process, made.folder, made.inventory)
    made.runs.append(run)
    run.line("window open")
    agents = [agent(made, host, tap.port) for host in ("one", "two")]
    run.done()
    for each in agents:
        each.communicate(timeout=20)
    wire = b"".join(tap.seen)
    rounds = len(wire) // (2 * 4 * numbers)
    assert rounds >= 2, "tensors did travel this way"
    kept = until(lambda: sorted(run.run_folder.rglob("*.safetensors")), 5, lambda: run.text)
    assert kept
    parameters = kept[0].read_bytes()[-4 * numbers :]
    for at in range(0, len(parameters) - 64, len(parameters) // 50 // 4 * 4):
        assert parameters[at : at + 64] not in wire
    for secret in (TOKEN.encode(), bytes.fromhex(TOKEN), b'"hello"', b"plain_rank.py", b"local_rank"):
        assert secret not in wire, secret

"""Three hosts train with torch in the modes beside the default: without waiting, and from rank to rank over gloo.

Torch is loaded 16 times in all.
"""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

from integration.cluster import Cluster
from integration.conftest import Make
from integration.project import rank_command
from integration.running import Running
from tools.lab.host import sh

DIGITS = Path(__file__).resolve().parents[1] / "docs" / "examples" / "digits"
ELSEWHERE = "02:00:00:00:77:99"  # nobody's address: what is sent there is lost without a word
SAMPLES = 1437


def start(cluster: Cluster, mode: str, *words: str) -> Running:
    for folder in cluster.folders.values():
        shutil.copytree(DIGITS, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    cluster.write({"digits": {"run": "python train.py", "env": {"OMP_NUM_THREADS": "1"}}})
    return cluster.start("--mode", mode, "@cluster", "digits", *words)


def merged(cluster: Cluster) -> list[list[list[int]]]:
    """The ledger's spans of each epoch."""
    lines = (cluster.folder / "runs" / "latest" / "metrics.jsonl").read_text().splitlines()
    return [row["merged"] for row in map(json.loads, lines) if row["kind"] == "epoch"]


def test_ranks_that_never_wait_go_on_when_one_of_them_dies(cluster: Cluster) -> None:
    run = start(cluster, "cpu-async", "--epochs", "4")
    run.line("epoch 1/4", within=90)
    cluster.one("attic", "rank").kill()
    state = run.done(within=60)
    result = run.result()
    assert (result["mode"], result["degraded"], result["samples"]) == ("cpu_async", True, 4 * SAMPLES), state
    assert merged(cluster) == [[[0, SAMPLES]]] * 4
    assert result["epochs"][-1]["eval"]["accuracy"] > 0.9
    run.nothing_left(10)


def test_tensors_go_from_rank_to_rank_and_a_death_costs_one_average(cluster: Cluster) -> None:
    run = start(cluster, "nccl_cadence", "--epochs", "4")
    run.line("nccl_cadence over gloo", within=90)
    run.line("epoch 1/4", within=60)
    cluster.one("attic", "rank").kill()
    state = run.done(within=60)
    result = run.result()
    assert (result["collective"], result["degraded"], result["samples"]) == ("gloo", True, 4 * SAMPLES), state
    assert merged(cluster) == [[[0, SAMPLES]]] * 4
    assert "gloo takes NCCL's place" in run.text
    run.nothing_left(10)


def test_ranks_that_drive_torch_distributed_themselves_meet_through_the_one_port(cluster: Cluster) -> None:
    cluster.write({"own": {"run": rank_command("own_group.py")}})
    run = cluster.start("--mode", "nccl_cadence", "@cluster", "own")
    run.line("rank 2 of 3: 6 in all", within=90)
    state = run.state()
    assert state and state.why == "the ranks have met, and drive torch.distributed themselves", run.text
    run.done(within=90)
    for rank in range(3):
        assert any(f"rank {rank} of 3: 6 in all" in line for line in run.out), run.text
    run.nothing_left(10)


def test_and_one_whose_data_differ_is_refused_by_host(project: Make) -> None:
    made = project(own={"run": rank_command("own_group.py", "differ")})
    run = made.start("--mode", "nccl_cadence", "@one", "own")
    assert run.wait(90) == 1, run.text  # with a traceback of torch, where it tells rank 0 that nobody comes any more
    here = socket.gethostname()
    refused = f"cannot train with rank 1 on {here}: its data are not those of {here} (cdcdcdcd against abababab)"
    state = run.state()
    assert state and state.cause and state.cause.rank == 1 and refused in state.cause.what, run.text
    run.nothing_left(10)


def test_where_only_the_controllers_port_is_open_nccl_modes_say_so_and_cpu_modes_train(cluster: Cluster) -> None:
    for host, other in (("tower", "attic"), ("attic", "tower")):
        neighbour = ["neigh", "replace", cluster.lab.address(other), "lladdr", ELSEWHERE, "dev", "eth0"]
        sh("ip", "-n", cluster.lab.hosts[host].namespace, *neighbour, "nud", "permanent")
    run = start(cluster, "nccl_sync", "--epochs", "1")
    state = run.failed(within=90)
    assert "it needs direct reach between the ranks" in run.text, state
    assert "cannot connect to" in run.text and "--mode cpu_cadence" in run.text
    run.nothing_left(10)
    cluster.write({"plain": {"run": rank_command("plain_rank.py", "--epochs", "1"), "mode": "cpu_cadence"}})
    cluster.start("@cluster", "plain").done()

"""Three hosts, each with its own sshd: desk types, tower gives two ranks, attic one."""

from __future__ import annotations

import json

from integration.cluster import Cluster
from integration.project import rank_command
from integration.until import until

from flodl_wire.state import PHASES

PLAIN = {"run": rank_command("plain_rank.py", "--epochs", "4"), "mode": "cpu_cadence"}
SAY = {"run": rank_command("say.py", "--env", "WHERE"), "mode": "torch"}


def test_a_run_trains_on_three_hosts_from_waiting_to_done(cluster: Cluster) -> None:
    """Training and the last state are there for seconds each, which somebody who looks again and again cannot miss."""
    cluster.write({"train": {**PLAIN, "run": rank_command("plain_rank.py", "--epochs", "80")}})
    run = cluster.start("@cluster", "train", env={"FLODL_NET_TIMEOUT_SCALE": "1"})
    phases: list[str] = []

    def ask() -> bool:
        """`fdl @cluster status --json`, as another terminal would, until the verdict."""
        done = cluster.fdl("@cluster", "status", "--json")
        if done.returncode == 0:
            phase = json.loads(done.stdout)["phase"]
            if phase not in phases[-1:]:
                phases.append(phase)
        return phases[-1:] in (["done"], ["failed"]) or run.process.poll() is not None

    until(ask, 90, lambda: f"{phases}\n{run.text}")
    state = run.done()
    assert phases == sorted(phases, key=PHASES.index) and phases[-1] == "done", phases
    assert {"waiting", "training"} <= set(phases), phases
    assert [(member.host, member.ranks, member.road) for member in state.members] == [
        ("tower", [0, 1], "ssh"),
        ("attic", [2], "ssh"),
    ]
    result = run.result()
    assert (result["world_size"], result["samples"]) == (3, 80 * 240)
    assert {(rank["rank"], rank["host"]) for rank in result["ranks"]} == {(0, "tower"), (1, "tower"), (2, "attic")}
    run.nothing_left(10)


def test_logs_of_all_ranks_arrive_with_their_host_and_rank_in_front(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    for worker in overlay["workers"]:
        worker["env"] = {"WHERE": f"on {worker['host']}"}
    cluster.write({"say": SAY}, overlay)
    run = cluster.start("@cluster", "say")
    run.done()
    for host, rank in (("tower", 0), ("tower", 1), ("attic", 2)):
        said = json.loads(run.line(rf"^\[{host}:{rank}\] ", within=1).partition("] ")[2])
        assert (said["rank"], said["env"]["WHERE"], said["cwd"]) == (rank, f"on {host}", str(cluster.folders[host]))
    run.nothing_left(10)


def test_the_controllers_own_box_may_be_one_of_the_hosts(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    desk = {"host": "desk", "local_devices": "cpu:1", "path": str(cluster.folder), "nccl_socket_ifname": "eth0"}
    overlay["workers"][1] = desk
    cluster.write({"train": PLAIN}, overlay)
    run = cluster.start("@cluster", "train")
    state = run.done()
    assert [member.road for member in state.members] == ["ssh", "local"]
    assert run.result()["samples"] == 4 * 240


def test_a_host_without_flodl_is_named_with_what_to_install(cluster: Cluster) -> None:
    cluster.write({"train": PLAIN})
    (cluster.folders["attic"] / ".venv").unlink()
    run = cluster.start("@cluster", "train")
    run.failed(within=60)
    assert "attic" in run.text and "flodl-agent" in run.text and "install" in run.text
    run.nothing_left(10)


def test_a_host_that_ssh_cannot_enter_shows_sshs_own_last_words(cluster: Cluster) -> None:
    cluster.write({"train": PLAIN})
    (cluster.lab.home("attic") / ".ssh" / "authorized_keys").write_text("")
    run = cluster.start("@cluster", "train")
    run.failed(within=60)
    assert "attic" in run.text and "Permission denied" in run.text
    run.nothing_left(10)


def test_a_command_that_does_not_exist_on_one_worker_is_named(cluster: Cluster) -> None:
    for host in ("desk", "tower"):
        program = cluster.folders[host] / "only-here"
        program.write_text("#!/bin/sh\nwhile :; do sleep 1; done\n")
        program.chmod(0o755)
    cluster.write({"train": {"run": "./only-here", "mode": "torch"}})
    run = cluster.start("@cluster", "train")
    state = run.failed(within=60)
    assert state.cause and state.cause.host == "attic", state
    assert "only-here" in run.text
    run.nothing_left(10)


def test_another_manifest_on_a_worker_is_refused(cluster: Cluster) -> None:
    cluster.write({"train": PLAIN})
    (cluster.folders["tower"] / "fdl.yml").write_text("commands: {train: {run: other}}\n")
    run = cluster.start("@cluster", "train")
    run.failed(within=60)
    assert "tower" in run.text and "fdl.yml" in run.text
    run.nothing_left(10)

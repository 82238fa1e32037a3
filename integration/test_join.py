"""Walk-ins across hosts: in over the network with a token, in through a guarded sshd, held, started, and run again."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from integration.cluster import PORT, Cluster
from integration.conftest import Make
from integration.project import rank_command
from integration.running import Running
from integration.until import until
from integration.walk_in import PROGRAM, guarded_key, walk_in, walk_in_here

from flodl_wire.state import State

TRAIN = {"run": rank_command("plain_rank.py", "--epochs", "4"), "mode": "cpu_cadence"}
TOKEN = "5eed" * 8


def discovery(cluster: Cluster, **join: Any) -> dict[str, Any]:
    """A controller that waits for whoever walks in."""
    window = {"discovery": True, "min_rank_start": 2, "join_timeout": 60, **join}
    return {"controller": {"host": cluster.lab.address("desk"), "path": str(cluster.folder), "join": window}}


def direct(cluster: Cluster, host: str, *words: object) -> Running:
    return walk_in(
        cluster, host, cluster.lab.address("desk"), "--token", TOKEN, "--bin", PROGRAM, "--devices", "cpu:1", *words
    )


def through_ssh(cluster: Cluster, host: str, *words: object) -> Running:
    road = f"root@{cluster.lab.address('desk')}"
    key = guarded_key(cluster, host, PORT)
    return walk_in(cluster, host, "--ssh", road, "--identity", key, "--bin", PROGRAM, "--devices", "cpu:1", *words)


def joined(run: Running, count: int) -> State:
    """The state once so many ranks are in."""
    found = until(lambda: (now := run.state()) and now.joined_ranks >= count and now, 40, lambda: run.text)
    assert isinstance(found, State)
    return found


def test_three_walk_ins_by_three_roads_are_held_and_trained_until_done(cluster: Cluster) -> None:
    cluster.write({"train": TRAIN}, discovery(cluster, min_rank_start=3, start="manual", token=TOKEN))
    run = cluster.start("@cluster", "train")
    until(lambda: run.state(), 30, lambda: run.text)
    walkers = [
        direct(cluster, "tower"),
        through_ssh(cluster, "attic", "--token", TOKEN),
        walk_in(
            cluster, "desk", "127.0.0.1", "--token", TOKEN, "--bin", PROGRAM, "--devices", "cpu:1", "--host", "cellar"
        ),
    ]
    held = run.phase("staging")
    assert {(member.host, member.road) for member in held.members} == {
        ("tower", "direct"), ("attic", "ssh"), ("cellar", "direct"),
    }  # fmt: skip
    assert cluster.fdl("@cluster", "start").returncode == 0
    done = run.done()
    assert sorted(rank for member in done.members for rank in member.ranks) == [0, 1, 2]
    assert run.result()["samples"] == 4 * 240
    for walker in walkers:
        assert walker.wait() == 0, walker.text
        walker.line("the world has formed: 3 ranks on 3 hosts, mode cpu_cadence", within=1)
    run.nothing_left(10)


def test_a_window_for_tunnels_alone_is_reached_through_sshd_and_no_other_way(cluster: Cluster) -> None:
    cluster.write({"train": TRAIN}, discovery(cluster, tunnel_only=True, target_ranks=2))
    run = cluster.start("@cluster", "train")
    until(lambda: run.state(), 30, lambda: run.text)
    desk = cluster.lab.address("desk")
    probe = f"import socket; socket.create_connection(({desk!r}, {PORT}), 2)"
    assert "ConnectionRefusedError" in cluster.lab.run("tower", sys.executable, "-c", probe).stderr
    walkers = [through_ssh(cluster, host) for host in ("tower", "attic")]
    state = run.done()
    assert [(member.road, member.address) for member in state.members] == [("ssh", "127.0.0.1")] * 2
    assert [walker.wait() for walker in walkers] == [0, 0]
    run.nothing_left(10)


def test_a_fleet_that_persists_takes_the_second_run_without_being_touched(cluster: Cluster) -> None:
    """It is there before the first run, and trains no finished run twice."""
    cluster.write({"train": TRAIN}, discovery(cluster, target_ranks=2, token=TOKEN))
    fleet = [direct(cluster, "tower", "--persist"), through_ssh(cluster, "attic", "--token", TOKEN, "--persist")]
    for walker in fleet:
        walker.line("dialling again in ")
    for number in (1, 2):
        run = cluster.start("@cluster", "train")
        run.done()
        for walker in fleet:
            until(lambda: _formed(walker) >= number, 20, lambda: walker.text)  # noqa: B023 - waited for at once
            until(lambda: _over(walker) >= number, 20, lambda: walker.text)  # noqa: B023
    for walker in fleet:
        before = len(walker.err)
        until(lambda: len(walker.err) >= before + 2, 30, lambda: walker.text)  # noqa: B023 - two tries with nobody there
        assert _formed(walker) == 2, "the training ran exactly once a run"
        assert "Traceback" not in walker.text
        walker.process.terminate()
        assert walker.wait() < 0


def _formed(walker: Running) -> int:
    return sum("the world has formed" in line for line in walker.err)


def _over(walker: Running) -> int:
    return sum("the run is over; dialling again" in line for line in walker.err)


def test_whoever_should_not_be_in_is_told_why(cluster: Cluster) -> None:
    """Another token, arguments that differ, a host of that name; none of them disturbs the window."""
    cluster.write({"train": TRAIN}, discovery(cluster, start="manual", token=TOKEN))
    run = cluster.start("@cluster", "train")
    until(lambda: run.state(), 30, lambda: run.text)
    in_first = direct(cluster, "tower")
    joined(run, 1)
    desk = cluster.lab.address("desk")
    usual = (desk, "--bin", PROGRAM, "--devices", "cpu:1")
    for words, said in (
        ((*usual, "--token", "ab" * 16), "holds another salt or token"),
        (usual, "token"),
        ((*usual, "--token", TOKEN, "--", "--epochs", "5"), "['--epochs', '5'], the run's are ['--epochs', '4']"),
        ((*usual, "--token", TOKEN, "--host", "tower"), "another box of that name"),
    ):
        refused = walk_in(cluster, "attic", *words)
        assert refused.wait() == 1, refused.text
        assert said in refused.text and "fix: " in refused.text, refused.text
    state = run.state()
    assert state and [member.host for member in state.members] == ["tower"]
    in_first.interrupt()
    assert in_first.wait() == 130
    until(lambda: (now := run.state()) and now.joined_ranks == 0, 10, lambda: run.text)
    run.interrupt()
    run.wait()
    run.nothing_left(10)


def test_a_rehearsal_says_what_would_happen_and_is_not_counted(cluster: Cluster) -> None:
    cluster.write({"train": TRAIN}, discovery(cluster, start="manual", token=TOKEN))
    run = cluster.start("@cluster", "train")
    until(lambda: run.state(), 30, lambda: run.text)
    rehearsed = direct(cluster, "tower", "--try", "--json")
    assert rehearsed.wait() == 0, rehearsed.text
    report = json.loads("".join(rehearsed.out))
    assert (report["admitted"], report["ranks"], report["args"]) == (True, [0], ["--epochs", "4"])
    assert report["round_trip_s"] > 0 and report["up_bytes_per_s"] > 0 and report["down_bytes_per_s"] > 0
    refused = direct(cluster, "attic", "--try", "--", "--epochs", "9")
    assert refused.wait() == 1 and "the run's are ['--epochs', '4']" in refused.text, refused.text
    state = run.state()
    assert state and (state.joined_ranks, state.members) == (0, [])
    run.interrupt()
    run.wait()
    run.nothing_left(10)


@pytest.mark.parametrize("road", ["refused", "timed out", "no route"])
def test_nobody_answers_in_three_sentences(cluster: Cluster, road: str) -> None:
    """A closed port, a host that is cut off, and a net that no route leads to."""
    address = {
        "refused": cluster.lab.address("desk"),
        "timed out": cluster.lab.address("attic"),
        "no route": "198.51.100.7",
    }[road]
    if road == "timed out":
        cluster.lab.cut("attic")
    walker = walk_in(cluster, "tower", address, "--bin", PROGRAM, "--devices", "cpu:1", "--token", TOKEN)
    assert walker.wait() == 1, walker.text
    said = {
        "refused": ("nothing listens on that port",),
        "timed out": ("packets are dropped on the way", "no route leads to that address"),  # a cut bridge may know
        "no route": ("no route leads to that address",),
    }[road]
    assert any(words in walker.text for words in said), walker.text


def test_a_key_that_may_not_forward_there_names_the_option(cluster: Cluster) -> None:
    key = guarded_key(cluster, "tower", PORT + 1)
    road = f"root@{cluster.lab.address('desk')}"
    walker = walk_in(cluster, "tower", "--ssh", road, "--identity", key, "--bin", PROGRAM, "--devices", "cpu:1")
    assert walker.wait() == 1
    assert "forwarding to 127.0.0.1:1337 is forbidden there" in walker.text and "permitopen=" in walker.text


def test_one_that_leaves_and_comes_back_five_times_is_there_once_and_disturbs_nobody(cluster: Cluster) -> None:
    cluster.write({"train": TRAIN}, discovery(cluster, start="manual", token=TOKEN))
    run = cluster.start("@cluster", "train")
    until(lambda: run.state(), 30, lambda: run.text)
    direct(cluster, "tower")
    joined(run, 1)
    for _ in range(5):
        again = direct(cluster, "attic")
        state = joined(run, 2)
        assert sorted(member.host for member in state.members) == ["attic", "tower"]
        again.interrupt()
        assert again.wait() == 130
        until(lambda: (now := run.state()) and now.joined_ranks == 1, 10, lambda: run.text)
    left = run.state()
    assert left and [(member.host, member.ranks) for member in left.members] == [("tower", [0])]
    run.interrupt()
    run.wait()
    run.nothing_left(10)


@pytest.mark.parametrize(
    ("bound", "dialled"),
    [("::1", "[::1]:{port}"), ("127.0.0.1", "[::1]:{port}"), ("127.0.0.1", "localhost:{port}")],
)
def test_an_address_of_either_kind_leads_in_and_is_shown_as_typed(project: Make, bound: str, dialled: str) -> None:
    made = project(train=TRAIN)
    window = {"discovery": True, "min_rank_start": 2, "target_ranks": 2}
    controller = {"host": bound, "port": made.port, "path": str(made.folder), "join": window}
    made.write("fdl.farm.yml", {"cluster": {"controller": controller}})
    run = made.start("@farm", "train")
    until(lambda: run.state(), 30, lambda: run.text)
    address = dialled.format(port=made.port)
    walkers = [walk_in_here(made, host, address, "--bin", PROGRAM) for host in ("one", "two")]
    state = run.done()
    assert {member.dialled for member in state.members} == {address}
    assert [walker.wait() for walker in walkers] == [0, 0]
    run.nothing_left(10)

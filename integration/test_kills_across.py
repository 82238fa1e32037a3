"""Three hosts: a kill, a stop or a cut on one of them leaves nothing on any."""

from __future__ import annotations

import signal

import pytest
from integration.account import first_cause, why
from integration.cluster import Cluster
from integration.processes import of_role
from integration.project import rank_command
from integration.running import Running
from integration.until import until

LONG = rank_command("plain_rank.py", "--epochs", "100000", "--max-failure", "1")
COMMANDS = {
    "train": {"run": LONG, "mode": "cpu_cadence"},
    "tolerant": {"run": rank_command("plain_rank.py", "--epochs", "60", "--batch-ms", "3"), "mode": "cpu_cadence"},
    "lasting": {"run": rank_command("plain_rank.py", "--epochs", "200", "--batch-ms", "3"), "mode": "cpu_cadence"},
    "short": {"run": rank_command("plain_rank.py", "--epochs", "1"), "mode": "cpu_cadence"},
}


def training(cluster: Cluster, command: str = "train") -> Running:
    cluster.write(COMMANDS)
    run = cluster.start("@cluster", command)
    run.phase("training")
    run.processes("rank", 3)
    return run


def the_next_run_starts(cluster: Cluster) -> None:
    run = cluster.start("@cluster", "short")
    run.done()


def test_the_launcher_is_killed(cluster: Cluster) -> None:
    run = training(cluster)
    cluster.one("desk", "launcher").kill()
    run.wait()
    run.nothing_left(10)
    assert why(cluster)["end"] == "crashed"
    the_next_run_starts(cluster)


def test_ctrl_c(cluster: Cluster) -> None:
    run = training(cluster)
    run.interrupt()
    assert run.wait(within=10) == 130, run.text
    run.nothing_left(10)
    assert why(cluster)["end"] == "interrupted"
    the_next_run_starts(cluster)


@pytest.mark.parametrize(
    ("host", "victim", "words"),
    [
        ("desk", "hub", ("coordinator",)),
        ("tower", "agent", ("tower",)),
        ("tower", "keeper", ("tower", "keeper")),
        ("tower", "relay", ("tower", "relay")),
    ],
)
def test_a_process_of_the_run_is_killed(cluster: Cluster, host: str, victim: str, words: tuple[str, ...]) -> None:
    run = training(cluster)
    cluster.one(host, victim).kill()
    state = run.failed(within=20)
    assert state.cause
    told = f"{state.cause.host} {state.cause.what} {state.why}"
    assert all(word in told for word in words), state
    first_cause(cluster, *words)
    run.nothing_left(10)
    the_next_run_starts(cluster)


def test_a_rank_is_killed_where_none_may_die(cluster: Cluster) -> None:
    run = training(cluster)
    cluster.one("attic", "rank").kill()
    state = run.failed(within=10)
    assert state.cause and (state.cause.host, state.cause.rank) == ("attic", 2), state
    assert "signal 9" in state.cause.what
    assert first_cause(cluster, "rank 2", "attic")["processes"][0]["name"] == "attic:2"
    run.nothing_left(10)
    the_next_run_starts(cluster)


def test_an_agent_is_stopped(cluster: Cluster) -> None:
    run = training(cluster)
    cluster.one("tower", "agent").kill(signal.SIGSTOP)
    state = run.failed(within=30)
    assert state.cause and state.cause.host == "tower", state
    first_cause(cluster, "tower")
    run.nothing_left(30)
    the_next_run_starts(cluster)


def test_agent_keeper_and_fan_out_are_stopped_and_sshd_wakes_the_agent(cluster: Cluster) -> None:
    """Nobody is left on tower who would end the rest: the fan-out's end is that of its ssh, and of sshd's session."""
    run = training(cluster)
    cluster.one("desk", "fanout").kill(signal.SIGSTOP)
    for role in ("keeper", "agent"):
        cluster.one("tower", role).kill(signal.SIGSTOP)
    state = run.failed(within=40)
    assert state.cause and state.cause.host == "tower" and "no sign of life" in state.cause.what, state
    first_cause(cluster, "tower", "no sign of life")
    run.nothing_left(30)
    the_next_run_starts(cluster)


def test_a_host_on_which_nobody_is_left_to_end_the_rest_is_lost_and_the_others_go_on(cluster: Cluster) -> None:
    run = training(cluster, "lasting")
    cluster.one("desk", "fanout").kill(signal.SIGSTOP)
    for role in ("keeper", "agent"):
        cluster.one("attic", role).kill(signal.SIGSTOP)
    state = run.done(within=90)
    assert state.degraded and run.result()["samples"] == 200 * 240
    assert "attic" in [each["host"] for each in why(cluster)["before"]]
    run.nothing_left(30)


def test_a_link_is_cut(cluster: Cluster) -> None:
    run = training(cluster)
    cluster.lab.cut("tower")
    state = run.failed(within=30)
    assert state.cause and state.cause.host == "tower", state
    assert first_cause(cluster, "tower")["first"]["host"] == "tower"
    # sshd itself notices a cut only when the link is back and its peer says so
    until(lambda: not [p for p in cluster.on("tower") if p.role != "sshd"], 30, lambda: "\n".join(run.left()))
    cluster.lab.heal("tower")
    the_next_run_starts(cluster)


def test_a_whole_host_is_lost_and_the_other_goes_on(cluster: Cluster) -> None:
    run = training(cluster, "tolerant")
    cluster.lab.cut("attic")
    state = run.done(within=90)
    result = run.result()
    assert state.degraded and result["degraded"]
    assert result["samples"] == 60 * 240, "every sample of every epoch merged once, the lost host's too"
    told = why(cluster)
    assert told["end"] == "degraded" and "attic" in [each["host"] for each in told["before"]], told
    until(lambda: not of_role(cluster.on("attic"), "rank"), 30)


def test_ssh_is_killed_under_an_agent(cluster: Cluster) -> None:
    """Its end is the end of the agent's stdin, which is the order to end."""
    run = training(cluster)
    for process in of_role(cluster.on("desk"), "ssh"):
        process.kill()
    run.failed(within=20)
    assert first_cause(cluster)["first"]["host"] in ("tower", "attic")
    run.nothing_left(10)

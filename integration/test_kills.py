"""One box: whoever is killed, nothing of the run is left, verdict and first cause are right, the next run starts."""

from __future__ import annotations

import signal
import socket

import pytest
from integration.account import first_cause, why
from integration.conftest import Make
from integration.project import RANKS, Project, rank_command
from integration.running import Running

from flodl_wire import environ

# max_failure 1 tolerates no dead rank
LONG = rank_command("plain_rank.py", "--epochs", "100000", "--max-failure", "1")
COMMANDS = {
    "train": {"run": LONG, "mode": "cpu_cadence"},
    "tolerant": {"run": rank_command("plain_rank.py", "--epochs", "60", "--batch-ms", "3"), "mode": "cpu_cadence"},
    "short": {"run": rank_command("plain_rank.py", "--epochs", "1"), "mode": "cpu_cadence"},
    "children": {"run": "python children.py", "mode": "torch"},
}


def the_next_run_starts(made: Project) -> None:
    with socket.create_server(("127.0.0.1", made.port)):
        pass  # the port is free
    made.start("@one", "short").done()


def training(made: Project) -> Running:
    run = made.start("@one", "train")
    run.phase("training")
    run.processes("rank", 2)
    return run


def test_the_launcher_is_killed(project: Make) -> None:
    made = project(**COMMANDS)
    run = training(made)
    run.processes("launcher")[0].kill()
    assert run.wait() == -signal.SIGKILL
    run.nothing_left(10)
    assert why(made)["end"] == "crashed"
    the_next_run_starts(made)


VICTIMS = {
    # role: words of which one must stand in the first cause
    "hub": ("coordinator lost", "coordinator"),
    "agent": ("agent", "lost"),
    "keeper": ("keeper",),
    "relay": ("relay",),
    "fanout": ("fan-out", "fanout"),
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_process_of_the_run_is_killed(project: Make, victim: str) -> None:
    made = project(**COMMANDS)
    run = training(made)
    run.processes(victim)[0].kill()
    state = run.failed(within=15)
    assert state.cause and any(word in f"{state.cause.what} {state.why}" for word in VICTIMS[victim]), state
    first_cause(made, VICTIMS[victim][0])
    run.nothing_left(10)
    assert run.result()["verdict"] == "failed"
    the_next_run_starts(made)


def test_the_fork_server_is_killed_and_the_ranks_come_all_the_same(project: Make) -> None:
    env = {"PYTHONPATH": "installed"}
    made = project(train={"run": "python train.py --epochs 1", "mode": "cpu_cadence", "env": env})
    stand_in = made.folder / "installed" / "torch.py"
    stand_in.parent.mkdir()
    stand_in.write_text(f"import os, time\nif {environ.LOCAL_RANK!r} not in os.environ: time.sleep(600)")
    plain = str(RANKS / "plain_rank.py")
    (made.folder / "train.py").write_text(
        f"import runpy, sys, torch\nsys.path.insert(0, {str(RANKS)!r})\nrunpy.run_path({plain!r}, run_name='__main__')"
    )
    run = made.start("@one", "train")
    run.processes("forkserver")[0].kill()
    run.done()
    assert "the fork server gave up (it was killed by signal 9)" in run.text
    run.nothing_left(10)


def test_a_rank_is_killed_where_none_may_die(project: Make) -> None:
    made = project(**COMMANDS)
    run = training(made)
    victim = next(rank for rank in run.processes("rank", 2) if f"pid {rank.pid}" in run.line(r":1\] rank 1 of 2"))
    victim.kill()
    state = run.failed(within=10)
    assert state.cause and state.cause.rank == 1 and "signal 9" in state.cause.what, state
    told = first_cause(made, "rank 1", "signal 9")
    assert "SIGKILL" in told["first"]["meaning"] and told["processes"][0]["name"].endswith(":1")
    run.nothing_left(10)
    the_next_run_starts(made)


def test_a_rank_is_killed_and_the_other_goes_on(project: Make) -> None:
    made = project(**COMMANDS)
    run = made.start("@one", "tolerant")
    run.phase("training")
    victim = next(rank for rank in run.processes("rank", 2) if f"pid {rank.pid}" in run.line(r":1\] rank 1 of 2"))
    victim.kill()
    state = run.done()
    result = run.result()
    assert state.degraded and result["degraded"]
    assert result["samples"] == 60 * 240, "every sample of every epoch merged once, the dead rank's too"
    told = why(made)
    assert (told["end"], [each["rank"] for each in told["before"]]) == ("degraded", [1]), told
    run.nothing_left(10)


def test_the_agent_is_stopped(project: Make) -> None:
    made = project(**COMMANDS)
    run = training(made)
    run.processes("agent")[0].kill(signal.SIGSTOP)
    state = run.failed(within=30)
    assert state.cause and "lost" in f"{state.cause.what} {state.why}", state
    first_cause(made, "lost", socket.gethostname())
    run.nothing_left(30)
    the_next_run_starts(made)


def test_the_keeper_is_stopped(project: Make) -> None:
    made = project(**COMMANDS)
    run = training(made)
    run.processes("keeper")[0].kill(signal.SIGSTOP)
    state = run.failed(within=30)
    assert state.cause and "keeper" in state.cause.what, state
    first_cause(made, "keeper", socket.gethostname())
    run.nothing_left(30)
    the_next_run_starts(made)


@pytest.mark.parametrize(
    ("stopped", "word", "within", "bound"),
    [
        (("keeper", "agent"), "no sign of life", 30, 30),  # nobody is left on their host to end the rest
        (("fanout", "keeper", "agent"), "no sign of life", 40, 30),  # the agent goes on when the fan-out is killed
        (("fanout", "agent"), "lost", 40, 10),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_several_that_watch_over_a_host_are_stopped(
    project: Make, stopped: tuple[str, ...], word: str, within: int, bound: int
) -> None:
    made = project(**COMMANDS)
    run = training(made)
    for role in stopped:
        run.processes(role)[0].kill(signal.SIGSTOP)
    state = run.failed(within=within)
    assert state.cause and word in state.cause.what, state
    first_cause(made, word, socket.gethostname())
    run.nothing_left(bound)
    the_next_run_starts(made)


LEAVES = ("plain_rank.py", "--epochs", "1", "--stop")


@pytest.mark.parametrize(
    "command",
    [
        rank_command(*LEAVES, "1:told"),
        rank_command(*LEAVES, "1:left"),
        f"sh -c '{rank_command(*LEAVES, '1:left')}; true'",
    ],
    ids=["told to leave", "behind its training", "below a shell"],
)
def test_a_rank_that_is_stopped_with_nothing_left_to_do_does_not_keep_the_run_from_its_end(
    project: Make, command: str
) -> None:
    made = project(train={"run": command, "mode": "cpu_cadence"})
    run = made.start("@one", "train")
    state = run.done()
    assert not state.degraded and "rank 1 on" in state.why and "never exited: stopped by a signal" in state.why, state
    assert run.result()["verdict"] == "done" and not run.result()["degraded"] and run.result()["samples"] == 240
    told = why(made)
    assert (told["end"], [each["rank"] for each in told["before"]]) == ("done", [1]), told
    assert "SIGSTOP" in told["before"][0]["meaning"] and "never exited" in told["sentence"], told
    run.nothing_left(10)


def test_a_rank_that_works_behind_its_training_is_waited_for(project: Make) -> None:
    made = project(train={"run": rank_command(*LEAVES, "1:left", "--linger", "go"), "mode": "cpu_cadence"})
    run = made.start("@one", "train")
    run.line("rank 1 on .* never exited")
    assert len(run.processes("rank")) == 1 and run.phase("training").ranks[0].status != "lost"
    (made.folder / "go").touch()
    assert "rank 1" in run.done().why
    run.nothing_left(10)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_agent_is_asked_to_end(project: Make, signum: signal.Signals) -> None:
    """As when it is killed: the run has failed, its host is named, and so is the signal."""
    made = project(**COMMANDS)
    run = training(made)
    run.processes("agent")[0].kill(signum)
    state = run.failed(within=15)
    assert state.cause and signum.name in f"{state.cause.what} {state.why}" and state.cause.host, state
    first_cause(made, signum.name, socket.gethostname())
    run.nothing_left(10)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_the_launcher_is_asked_to_end(project: Make, signum: signal.Signals) -> None:
    made = project(**COMMANDS)
    run = training(made)
    run.processes("launcher")[0].kill(signum)
    assert run.wait(within=15) in (1, 130, 128 + signum)
    state = run.state()
    assert state and state.phase == "failed" and signum.name in state.why, state
    assert why(made)["end"] == "interrupted"
    run.nothing_left(10)


CHILDREN = """
import os, subprocess, sys, threading
if os.environ["RANK"] == "0":
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sh", "-c", "sleep 1000; true"])
    subprocess.Popen(["setsid", "sleep", "1000"])
    subprocess.Popen(["sh", "-c", "setsid sh -c 'trap \\"\\" TERM HUP; sleep 1000; true' & exit"]).wait()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        threading.Event().wait()
print("up", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("how", ["ctrl-c", "kill launcher", "kill agent", "kill keeper"])
def test_children_that_ranks_hid_in_sessions_of_their_own_go_too_and_bystanders_stay(project: Make, how: str) -> None:
    import subprocess

    made = project(**COMMANDS)
    (made.folder / "children.py").write_text(CHILDREN)
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        try:
            run = made.start("@one", "children")
            run.line(r":0\] up")
            run.line(r":1\] up")
            run.processes("sleep", 4)
            if how == "ctrl-c":
                run.interrupt()
            else:
                run.processes(how.split()[1])[0].kill()
            run.wait(within=15)
            run.nothing_left(10)
            assert bystander.poll() is None
        finally:
            bystander.kill()

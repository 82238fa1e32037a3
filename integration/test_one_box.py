"""A run on one box, as a user starts and sees it. No torch in these ranks."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from integration.conftest import Make, OwnNetwork
from integration.project import BIN, rank_command

PLAIN = {"run": rank_command("plain_rank.py"), "mode": "cpu_cadence"}
LONG = {"run": rank_command("plain_rank.py", "--epochs", "100000"), "mode": "cpu_cadence"}
SAY = {"run": rank_command("say.py"), "mode": "torch"}


def test_two_ranks_train_to_done_and_leave_result_logs_metrics_checkpoint_and_state(project: Make) -> None:
    run = project(train=PLAIN).start("@one", "train")
    state = run.done()
    result = run.result()
    assert (result["verdict"], result["world_size"], result["mode"]) == ("done", 2, "cpu_cadence")
    assert result["samples"] == 2 * 240 == sum(rank["samples"] for rank in result["ranks"])
    assert [epoch["samples"] for epoch in result["epochs"]] == [240, 240]
    assert state.run == result["run"] == run.run_folder.resolve().name
    names = {path.relative_to(run.run_folder.resolve()).as_posix() for path in run.run_folder.resolve().rglob("*")}
    logs = {name for name in names if name.startswith("log/")}
    assert {"result.json", "state.json", "metrics.jsonl", "checkpoint.safetensors"} <= names
    assert {name.rpartition("-")[2] for name in logs} >= {"0.log", "1.log"}
    run.nothing_left(5)


def test_the_bare_flag_runs_on_this_box_without_an_overlay(project: Make, own_network: OwnNetwork) -> None:
    made = project(say=SAY)
    command = [*own_network(made.folder), str(BIN / "fdl"), "--gpus", "cpu:2", "say"]
    done = subprocess.run(command, cwd=made.folder, capture_output=True, text=True, timeout=60, env=made.environment())
    assert done.returncode == 0, done.stderr
    assert sum('{"rank"' in line for line in done.stdout.splitlines()) == 2


def test_every_line_of_a_rank_arrives_with_host_and_rank_in_front_and_its_log_holds_it(project: Make) -> None:
    run = project(say=SAY).start("@one", "say")
    run.done()
    for rank in (0, 1):
        line = run.line(rf"^\[\S+:{rank}\] \{{", within=1)
        said = line.partition("] ")[2]
        assert json.loads(said)["rank"] == rank
        (log,) = (run.run_folder / "log").glob(f"*-{rank}.log")
        assert said in log.read_text().splitlines()


@pytest.mark.parametrize("command", ["plain", "torch"])
def test_a_rank_that_exits_3_fails_the_run_and_is_named(project: Make, command: str) -> None:
    plain = {"run": rank_command("plain_rank.py", "--exit", "1:2:3"), "mode": "cpu_cadence"}
    torch = {"run": rank_command("say.py", "--exit", "1:3", "--stay", "0"), "mode": "torch"}
    run = project(train=plain if command == "plain" else torch).start("@one", "train")
    run.line('leaves in window 2|"rank": 1')
    gone = time.monotonic()
    state = run.failed(within=10)
    assert time.monotonic() - gone < 10
    assert state.cause and state.cause.rank == 1
    assert "exit" in state.cause.what and "3" in state.cause.what
    assert any("rank 1" in line and "3" in line for line in run.err)
    assert json.loads((run.run_folder / "result.json").read_text())["verdict"] == "failed"
    run.nothing_left(5)


def test_ctrl_c_ends_the_run_with_130_and_nothing_stays(project: Make) -> None:
    run = project(train=LONG).start("@one", "train")
    run.phase("training")
    run.interrupt()
    assert run.wait(within=10) == 130, run.text
    assert "Traceback" not in run.text
    run.nothing_left(10)
    state = run.state()
    assert state and state.phase == "failed"


def test_a_second_ctrl_c_ends_it_at_once(project: Make) -> None:
    stubborn = {"run": "sh -c 'trap \"\" TERM INT; echo up; while :; do sleep 1; done'", "mode": "torch"}
    run = project(train=stubborn).start("@one", "train", env={"FLODL_NET_TIMEOUT_SCALE": "1"})
    run.line(r":1\] up")
    run.interrupt()
    run.line("(?i)ctrl-c|interrupt|ending", within=10)
    time.sleep(0.3)  # plays a person who thinks again: what comes at once is the same wish
    run.interrupt()
    began = time.monotonic()
    assert run.wait(within=5) == 130, run.text
    assert time.monotonic() - began < 2
    run.nothing_left(10)


def test_a_command_that_does_not_exist_is_named_and_nothing_stays(project: Make) -> None:
    run = project(train={"run": "no-such-program --lr 1", "mode": "torch"}).start("@one", "train")
    run.failed()
    assert any("no-such-program" in line for line in run.err), run.text
    run.nothing_left(5)


def test_the_port_of_a_run_that_just_ended_is_free_at_once(project: Make) -> None:
    made = project(say=SAY)
    made.start("@one", "say").done()
    made.start("@one", "say").done()


def test_status_answers_while_it_runs_and_its_json_is_one_document(project: Make) -> None:
    made = project(train=LONG)
    run = made.start("@one", "train")
    run.phase("training")
    asked = made.fdl("@one", "status", "--json")
    assert asked.returncode == 0, asked.stderr
    served = json.loads(asked.stdout)
    assert (served["phase"], served["joined_ranks"], served["joined_hosts"]) == ("training", 2, 1)
    text = made.fdl("status", "--addr", f"127.0.0.1:{made.port}")
    assert text.returncode == 0 and "training" in text.stdout
    run.interrupt()
    run.wait()
    nobody = made.fdl("status", "--addr", f"127.0.0.1:{made.port}")
    assert nobody.returncode == 1 and "Traceback" not in nobody.stderr

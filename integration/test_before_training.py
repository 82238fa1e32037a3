"""What goes wrong between the command and the first batch: a rank that never comes, a host that leaves again."""

from __future__ import annotations

import json
import re

import pytest
from integration.account import first_cause
from integration.conftest import Make
from integration.project import RANKS
from integration.test_persist import COMMANDS, farm, fleet
from integration.until import until

from flodl_wire import environ

READY = 20  # s; five minutes, as it stands, are no test

# Loads for ever on rank 1, as a download without an end does; rank 0 trains.
STUCK = f"""
import runpy, sys, threading
from flodl_planes import local_cluster
if local_cluster().rank == 1:
    print("loading the weights", flush=True)
    threading.Event().wait()
sys.path.insert(0, {str(RANKS)!r})
runpy.run_path({str(RANKS / "plain_rank.py")!r}, run_name="__main__")
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three relays that start at once on a busy box need longer than the suite's tenth of all deadlines."""
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, "0.3")


def test_a_rank_that_loads_for_ever_is_named_with_what_to_do_and_the_run_ends_by_itself(project: Make) -> None:
    made = project(train={"run": "python train.py", "mode": "cpu_cadence"})
    (made.folder / "train.py").write_text(STUCK)
    shorter = made.folder / "shorter"
    shorter.mkdir()
    deadline = f"limits._LEAST_READY, limits.deadlines.RANKS_READY = 0.0, {READY}.0"
    (shorter / "sitecustomize.py").write_text(f"from flodl_window import limits\n{deadline}\n")
    run = made.start("@one", "train", env={"PYTHONPATH": str(shorter), environ.NET_TIMEOUT_SCALE: "1"})
    run.line(r":1\] loading the weights")
    run.line(r"ranks loading: 1 of 2 ready")
    state = until(lambda: (now := run.state()) and "1 of 2 ranks ready" in now.why and now, 10, lambda: run.text)
    assert state and {rank.rank: rank.status for rank in state.ranks} == {0: "ready", 1: "starting"}
    state = run.failed(within=READY + 30)
    cause = state.cause
    assert cause and cause.rank == 1, state
    why = f"not ready within {READY} s of the formation: alive, but never reached the Trainer"
    assert re.fullmatch(rf"rank 1 on \S+ {why}", cause.what), cause
    assert "does the command train with flodl? On a slow box raise FLODL_NET_TIMEOUT_SCALE" in run.text
    first_cause(made, "rank 1", "not ready")
    run.nothing_left(10)


def test_one_that_leaves_while_the_countdown_runs_holds_the_start_up_until_another_comes(project: Make) -> None:
    made = project(**COMMANDS)
    farm(made, target_ranks=3, start="hybrid", join_timeout=12, max_join_timeout=120)
    one, two = fleet(made, "one", "two")
    for walker in (one, two):
        walker.line("dialling again")  # so both are in at once when the window opens
    run = made.start("@farm", "train")
    held = run.phase("staging")
    assert held.joined_ranks == 2 and held.window_remaining_secs, held
    assert "roster startable" in held.why
    two.interrupt()
    assert two.wait() == 130
    lost = run.phase("waiting")
    assert lost.joined_ranks == 1 and lost.why.startswith("have 1 rank, need 1 more; closes in "), lost
    refused = made.fdl("@farm", "start")
    assert refused.returncode != 0 and "quorum is not met: 1/2 ranks are in" in refused.stderr + refused.stdout
    run.line(r"still waiting: have 1 rank, need 1 more \([2-9]\d s\)")
    served = json.loads(made.fdl("@farm", "status", "--json").stdout)
    assert (served["phase"], served["joined_ranks"], served["window_remaining_secs"]) == ("waiting", 1, 0), served
    assert served["cap_remaining_secs"] > 0, "the countdown is over, the start is held up: how long still"
    fleet(made, "three")
    done = run.done()
    assert sorted(member.host for member in done.members) == ["one", "three"]
    assert sorted(rank for member in done.members for rank in member.ranks) == [0, 1], "contiguous"
    assert run.result()["samples"] == 2 * 240

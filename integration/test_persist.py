"""A fleet that dials for ever: before there is a controller, past one that dies, beside the wrong one."""

from __future__ import annotations

import signal
from typing import Any

from integration.conftest import Make
from integration.crowd import free_port
from integration.processes import of_role
from integration.project import Project, rank_command
from integration.running import Running
from integration.until import until
from integration.walk_in import PROGRAM, walk_in_here

TOKEN, OTHER = "5eed" * 8, "0ddb" * 8
COMMANDS = {
    "train": {"run": rank_command("plain_rank.py", "--epochs", "2"), "mode": "cpu_cadence"},
    "long": {"run": rank_command("plain_rank.py", "--epochs", "100000"), "mode": "cpu_cadence"},
}


def farm(made: Project, token: str = TOKEN, **join: Any) -> None:
    window = {"discovery": True, "min_rank_start": 2, "target_ranks": 2, "token": token, **join}
    controller = {"host": "127.0.0.1", "port": made.port, "path": str(made.folder), "join": window}
    made.write("fdl.farm.yml", {"cluster": {"controller": controller}})


def fleet(made: Project, *names: str) -> list[Running]:
    where = f"127.0.0.1:{made.port}"
    return [walk_in_here(made, name, where, "--token", TOKEN, "--bin", PROGRAM, "--persist") for name in names]


def formed(walker: Running) -> int:
    return sum("the world has formed" in line for line in walker.err)


def test_three_that_dial_before_there_is_a_controller_are_all_in_when_it_comes(project: Make) -> None:
    made = project(**COMMANDS)
    farm(made, min_rank_start=3, target_ranks=3)
    walkers = fleet(made, "one", "two", "three")
    for walker in walkers:
        walker.line("dialling again in 1 s")
        assert len(walker.err) <= 3 and "Traceback" not in walker.text, "two tries, and the fix once"
    state = made.start("@farm", "train").done()
    assert sorted(member.host for member in state.members) == ["one", "three", "two"]


def test_a_fleet_outlives_its_controller_and_takes_the_next_run(project: Make) -> None:
    made = project(**COMMANDS)
    farm(made)
    walkers = fleet(made, "one", "two")
    run = made.start("@farm", "long")
    run.phase("training")
    run.processes("launcher")[0].kill(signal.SIGKILL)
    run.wait()
    until(lambda: not of_role(made.inventory(), "rank"), 10, lambda: "\n".join(map(str, made.inventory())))
    for walker in walkers:
        walker.line("lost the link to 127.0.0.1.*dialling again in 0.5 s")
    again = made.start("@farm", "train")
    state = again.done()
    assert sorted(member.host for member in state.members) == ["one", "two"], "each there once"
    for walker in walkers:
        until(lambda: formed(walker) == 2, 5, lambda: walker.text)  # noqa: B023 - waited for at once
        assert "Traceback" not in walker.text


def test_two_controllers_on_one_box_keep_their_workers_apart(project: Make) -> None:
    """The wrong one refuses by name, nobody else is disturbed, and both runs end well."""
    one, two = project(folder="one", **COMMANDS), project(folder="two", **COMMANDS)
    two.port = free_port()
    farm(one)
    farm(two, OTHER)
    runs = [made.start("@farm", "train") for made in (one, two)]
    for run in runs:
        until(lambda: run.state(), 30, lambda: run.text)  # noqa: B023 - waited for at once
    usual = ("--bin", PROGRAM, "--devices", "cpu:2")
    for made, token in ((one, OTHER), (two, TOKEN)):
        lost = walk_in_here(made, "lost", f"127.0.0.1:{made.port}", "--token", token, *usual)
        assert lost.wait() == 1 and "holds another salt or token" in lost.text, lost.text
    for made, token in ((one, TOKEN), (two, OTHER)):
        walk_in_here(made, "box", f"127.0.0.1:{made.port}", "--token", token, *usual)
    for run in runs:
        state = run.done()
        assert [member.host for member in state.members] == ["box"]
        assert "turned away a connection from 127.0.0.1: " in run.text


def test_a_world_that_never_fills_fails_at_its_cap_with_the_numbers(project: Make) -> None:
    made = project(**COMMANDS)
    farm(made, min_rank_start=4, target_ranks=4, join_timeout=1, max_join_timeout=3)
    (only,) = fleet(made, "one")
    run = made.start("@farm", "train")
    state = run.failed()
    assert "have 1 rank, need 3 more when the window ended after 3 s" in f"{state.why} {state.cause}", state
    only.line("aborted by the controller")

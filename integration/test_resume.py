"""Runs that are cut short go on with `fdl --resume`: killed in the middle of a save, at an epoch's very end, by
whoever, and with another number of ranks.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from integration.cluster import Cluster
from integration.conftest import Make
from integration.project import Project, rank_command
from integration.running import START, Running
from integration.until import until
from tools.chaos.judge import cursor

SAMPLES = 480
TRAIN = {"run": rank_command("learning_rank.py", "--epochs", "12"), "mode": "cpu_cadence"}
LONG = {"run": rank_command("learning_rank.py", "--epochs", "100000"), "mode": "cpu_cadence"}


def rows(folder: Path) -> list[tuple[int, list[list[int]]]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["epoch"], row["merged"]) for row in found if row["kind"] == "epoch"]


def overlays(made: Project, *ranks: int) -> None:
    for count in ranks:
        made.write(f"fdl.of{count}.yml", {"cluster": made.one_box(count)})


def saved(run: Running, within: float = START) -> Path:
    """The run's folder as soon as a checkpoint stands there."""
    until(lambda: (run.run_folder / "checkpoint.safetensors").exists(), within, lambda: run.text)
    return run.run_folder.resolve()


def test_three_ranks_then_two_then_four_do_every_epoch_once(project: Make) -> None:
    made = project(train=TRAIN, ranks=3)
    overlays(made, 2, 3, 4)
    folders = []
    for words in (("@of3",), ("--resume", "@of2")):
        run = made.start(*words, "train")
        run.line(r"epoch [246]/12")
        run.interrupt()
        assert run.wait() == 130, run.text
        folders.append(run.run_folder.resolve())
    last = made.start("--resume", "@of4", "train")
    last.done()
    folders.append(last.run_folder.resolve())
    done = [row for folder in folders for row in rows(folder)]
    assert done == [(epoch, [[0, SAMPLES]]) for epoch in range(12)], "an interrupted run loses nothing"
    assert [cursor(folder)["world_size"] for folder in folders] == [3, 2, 4]
    reasons = {cursor(folder)["reason"] for folder in folders[:2]}
    assert reasons <= {"graceful_shutdown", "checkpoint"}, "the last average may have been saved a moment before"
    assert [epoch["epoch"] for epoch in last.result()["epochs"]] == list(range(12))
    assert any("goes on from" in line for line in last.err) and any("momentum is back" in line for line in last.out)


def test_killed_in_the_middle_of_a_save_the_run_goes_on_from_the_one_before(project: Make) -> None:
    heavy = rank_command("learning_rank.py", "--epochs", "100000", "--ballast", "8000000", "--checkpoint-every", "0.05")
    made = project(train={"run": heavy, "mode": "cpu_cadence"})
    run = made.start("@one", "train")
    folder = saved(run)
    (hub,) = run.processes("hub")
    part = folder / ".checkpoint.safetensors.part"
    until(part.exists, 20, lambda: run.text)
    hub.kill()
    run.failed()
    stood = cursor(folder)  # whole, whatever the moment
    words = ("--epochs", str(stood["epoch"] + 2), "--ballast", "8000000")
    grown = {**TRAIN, "run": rank_command("learning_rank.py", *words)}
    made.write("fdl.yml", {"commands": {"more": {"cluster": True, **grown}}})
    again = made.start("--resume", "@one", "more")
    again.done()
    assert rows(again.run_folder)[-1] == (stood["epoch"] + 1, [[0, SAMPLES]])


def test_stopped_at_the_very_end_of_an_epoch_all_that_follow_are_done(project: Make) -> None:
    epochs = {"run": rank_command("learning_rank.py", "--epochs", "3", "--checkpoint-every", "1"), "mode": "cpu_sync"}
    made = project(train=epochs)
    run = made.start("@one", "train")
    folder = saved(run)
    run.processes("hub")[0].kill()
    run.failed()
    assert (cursor(folder)["epoch"], cursor(folder).get("merged", [])) == (1, [])
    again = made.start("--resume", "@one", "train")
    again.done()
    assert rows(again.run_folder) == [(1, [[0, SAMPLES]]), (2, [[0, SAMPLES]])]
    assert again.result()["samples"] == 2 * SAMPLES
    assert sum(rank["batches"] for rank in again.result()["ranks"]) == 2 * SAMPLES // 8


def test_a_killed_controller_costs_little_and_full_speed_is_back_soon(project: Make) -> None:
    made = project(train=LONG, ranks=3)
    overlays(made, 2)
    run = made.start("@one", "train")
    folder = saved(run)
    run.processes("launcher")[0].kill()
    killed = time.monotonic()
    run.wait()
    run.nothing_left(10)
    before = cursor(folder)
    again = made.start("--resume", "@of2", "train")
    again.line(rf"epoch {before['epoch'] + 1}/100000 ")
    assert time.monotonic() - killed < 60
    again.interrupt()
    again.wait()


def never_started(run: Running, why: str) -> None:
    """It ends at once with `why`, and no window was opened for it."""
    assert run.wait() == 1, run.text
    assert any(why in line for line in run.err) and not any("window open" in line for line in run.err), run.text


def test_what_cannot_be_resumed_is_a_sentence_and_nothing_is_left(project: Make) -> None:
    other = {"run": rank_command("learning_rank.py", "--ballast", "7"), "mode": "cpu_cadence"}
    made = project(train={"run": rank_command("learning_rank.py", "--epochs", "1"), "mode": "cpu_cadence"}, other=other)
    runs = made.folder / "runs"
    never_started(made.start("--resume", "@one", "train"), f"no run below {runs} left a checkpoint")
    first = made.start("@one", "train")
    first.done()
    run = first.run_folder.resolve()
    never_started(made.start(f"--resume={run.name[:-1]}~", "@one", "train"), f"fix: did you mean {run.name}?")
    cut = made.folder / "cut.safetensors"
    cut.write_bytes((run / "checkpoint.safetensors").read_bytes()[:-9])
    never_started(
        made.start("--resume=cut.safetensors", "@one", "train"), "cannot use cut.safetensors: it is cut short"
    )
    assert [path.name for path in runs.iterdir() if not path.is_symlink()] == [run.name]
    wrong = made.start("--resume", "@one", "other")
    wrong.failed()
    assert any("its ballast is F32 1, the script's model has ballast (F32 7)" in line for line in wrong.err), wrong.text
    wrong.nothing_left(5)


def test_another_wire_another_outer_optimizer_and_another_mode_go_on_over_the_same_hosts(cluster: Cluster) -> None:
    chain = {
        "exact": ("cpu_cadence", ("--outer", "nesterov"), "over the averages"),
        "narrow": (
            "cpu_cadence",
            ("--wire", "bf16", "--outer", "slow_momentum"),
            "is another than the script's slow_mo",
        ),
        "narrower": ("cpu_sync", ("--wire", "int8"), r"outer optimizer \(slow_momentum\) is gone from the script"),
    }
    words = ("--epochs", "12")
    cluster.write({name: {"run": rank_command("learning_rank.py", *words, *more), "mode": mode}
                   for name, (mode, more, _) in chain.items()})  # fmt: skip
    done: list[tuple[int, list[list[int]]]] = []
    for name, (mode, _, said) in chain.items():
        run = cluster.start(*(["--resume"] if done else []), "@cluster", name)
        run.line(said)
        if name == "narrower":
            run.done()
        else:
            run.line(rf"epoch {len(done) + 3}/12 ")
            run.interrupt()
            assert run.wait() == 130, run.text
        folder = run.run_folder.resolve()
        done += rows(folder)
        assert (cursor(folder)["mode"], cursor(folder)["world_size"]) == (mode, 3)
    assert done == [(epoch, [[0, SAMPLES]]) for epoch in range(12)]
    assert run.result()["epochs"][-1]["eval"]["off"] < 2.0, "and it has learned"

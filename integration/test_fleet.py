"""A run is published; boxes that never heard of it fetch it, prove it, build it, join and train; then the next one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from integration.cluster import Cluster
from integration.fleet import RRSYNC, Fleet, said
from integration.project import BIN
from integration.running import Running
from integration.until import until


@pytest.fixture
def fleet(cluster: Cluster) -> Fleet:
    if not Path(RRSYNC).exists():
        pytest.skip("no rrsync here: apt install rsync")
    return Fleet(cluster)


PAUSE = 60.0  # between two dials of a box that has long waited


def run_to_its_end(fleet: Fleet, tree: str, walkers: list[Running], number: int) -> None:
    run = fleet.train()
    try:
        run.done(2 * PAUSE)
    except AssertionError as err:
        raise AssertionError("\n".join([str(err), *(walker.text for walker in walkers)])) from None
    assert said(run, f"tree {tree}") == 2, run.text
    for walker in walkers:
        until(lambda: said(walker, "the run is over; dialling again") == number, 20, lambda: walker.text)  # noqa: B023


@pytest.mark.timeout(400)  # on a busy box each wait may meet the longest pause
def test_publishing_again_chains_the_next_run_with_nothing_to_edit_on_any_worker(fleet: Fleet, tmp_path: Path) -> None:
    """It stands by before anything is published; and a publish in the middle is waited for, and never half taken."""
    fleet.open_door(target_ranks=2, join_timeout=300)
    walkers = [fleet.stand_by(host, env={"WORKER": "1"}) for host in ("tower", "attic")]
    for walker in walkers:
        walker.line("dialling again in ")
        assert said(walker, "cannot fetch rsync://root@desk:/tree") or said(walker, "cannot take the run at"), (
            walker.text
        )
    first = fleet.publish()
    run_to_its_end(fleet, "one", walkers, 1)
    fleet.tree("two")
    (fleet.source / "new.txt").write_text("new")
    (fleet.copy("tower") / "mine.o").write_text("what a build made")
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    words = fleet.publish_words("--build", f"[ -n \"$WORKER\" ] || cat '{fifo}'")  # it holds the gate alone
    publish = fleet.lab.popen("desk", BIN / "fdl", *words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with fifo.open("w"):  # opens when the gate reads
        for walker in walkers:
            waited = said(walker, "it has no manifest")
            until(lambda: said(walker, "it has no manifest") > waited, 1.5 * PAUSE, lambda: walker.text)  # noqa: B023
    assert publish.communicate(timeout=60)[0]
    fleet.publish()
    run_to_its_end(fleet, "two", walkers, 2)
    for host, walker in zip(("tower", "attic"), walkers, strict=True):
        assert (fleet.copy(host) / "new.txt").exists() and said(
            walker, f"run {first['run'][:8]} is here and built"
        ) == 1
        assert "Traceback" not in walker.text
    assert (fleet.copy("tower") / "mine.o").exists(), "a build is nobody's business"
    walkers[0].process.terminate()
    assert walkers[0].wait() < 0


def test_who_fetched_before_the_publish_is_refused_at_the_door_though_first_and_comes_back_right(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.open_door(target_ranks=2)
    fifo = tmp_path / "hold"
    os.mkfifo(fifo)
    old = fleet.publish("--build", 'cat "${HOLD:-/dev/null}"')
    late = fleet.stand_by("tower", env={"HOLD": str(fifo)})
    with fifo.open("w"):  # opens when its build reads: it has fetched
        fleet.tree("two")
        new = fleet.publish()
        run = fleet.train()
    late.line(f"it holds run {old['run'][:8]}, and run {new['run'][:8]} has been published over it")
    late.line(f"run {new['run'][:8]} is here and built")
    fleet.stand_by("attic")
    run.done()
    assert said(run, "tree two") == 2 and not said(run, "tree one"), run.text


def test_a_publish_while_members_of_the_run_before_wait_brings_them_back_with_the_new_one(fleet: Fleet) -> None:
    fleet.open_door(start="manual", max_join_timeout=300)
    old = fleet.publish()
    walkers = [fleet.stand_by(host) for host in ("tower", "attic")]
    run = fleet.train()
    run.phase("staging")
    fleet.tree("two")
    new = fleet.publish()
    stale = f"it holds run {old['run'][:8]}, and run {new['run'][:8]} has been published over it"
    for host, walker in zip(("tower", "attic"), walkers, strict=True):
        walker.line(stale)
        run.line(f"{host} is out again: {stale}")
    assert said(run, "is in: rank") == 2, run.text
    until(lambda: said(run, "is in: rank") == 4, PAUSE, lambda: "\n".join([run.text, *(each.text for each in walkers)]))
    fired = fleet.cluster.fdl("@cluster", "start")
    assert fired.returncode == 0, fired
    run.done()
    assert said(run, "tree two") == 2 and not said(run, "tree one"), run.text
    assert not any("Traceback" in walker.text for walker in walkers)


def test_a_worker_builds_against_the_torch_that_it_is_told_to_hold(fleet: Fleet, standin_wheel: Any) -> None:
    """A stand-in for torch, by pip from a folder of wheels; it reaches the build and the ranks, and nothing else."""
    wheels = fleet.lab.home("tower") / "wheels"
    wheel = standin_wheel(wheels)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}
    program = "import torch, os\nprint('torch', torch.__version__, os.environ['LD_LIBRARY_PATH'], flush=True)\n"
    (fleet.source / "which.py").write_text(program + "TREE = 'one'\n")
    fleet.publish("--build", 'echo "against $LIBTORCH_PATH"')
    fleet.open_door(target_ranks=2)
    walkers = [fleet.stand_by(host, "--libtorch", "cpu", env=offline) for host in ("tower", "attic")]
    run = fleet.train()
    run.done()
    for host, walker in zip(("tower", "attic"), walkers, strict=True):
        variant = fleet.lab.home(host) / ".flodl/libtorch/precompiled/cpu"
        assert said(walker, f"| against {variant}") == 1, walker.text
        assert said(run, f"torch {wheel.name.split('-')[1]} {variant}/lib") == 1, run.text
        listed = fleet.lab.run(host, BIN / "fdl", "libtorch", "list")
        assert listed.stdout.startswith("* precompiled/cpu"), listed
    state = run.state()
    assert state and [member.libtorch for member in state.members] == ["cpu", "cpu"]


DATA_PROGRAM = """\
import os, pathlib, sys
import plain_rank
data = pathlib.Path(os.environ["FLODL_DATA_PATH"])
try:
    (data / "mine").write_text("")
except OSError as err:
    print("data", (data / "set.txt").read_text(), err.strerror, flush=True)
raise SystemExit(plain_rank.main())
"""


def mounted(fleet: Fleet, host: str, point: Path) -> list[str]:
    """Id and kind of every mount there, as that host sees it."""
    lines = fleet.lab.run(host, "cat", "/proc/self/mountinfo").stdout.splitlines()
    return [
        f"{line.split()[0]} {line.partition(' - ')[2].split()[0]}" for line in lines if line.split()[4] == str(point)
    ]


def test_data_from_another_box_are_mounted_read_only_and_a_dead_mount_never_stays(fleet: Fleet) -> None:
    if not Path("/usr/bin/sshfs").exists():
        pytest.skip("no sshfs here: apt install sshfs")
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse here: nothing can be mounted")
    shared, point = fleet.lab.home("desk") / "set", fleet.lab.home("tower") / "data"
    shared.mkdir()
    (shared / "set.txt").write_text("of desk")
    (fleet.source / "train.py").write_text(DATA_PROGRAM)
    fleet.open_door(target_ranks=2)
    fleet.publish()
    plain = fleet.lab.home("tower") / ".ssh/id_ed25519"  # the farm's key may read what is served and nothing else
    data = ("--data-source", f"sshfs://root@desk:{shared}", "--data-path", point)
    words = ("--ssh", "root@desk", "--identity", plain, "--devices", "cpu:1", "--persist")
    source = f"rsync://root@desk:{fleet.served}/tree"
    walker = fleet.join("tower", *words, "--source", source, *data)
    fleet.stand_by("attic", "--data-path", shared)  # a lab's hosts share their disk
    walker.line(f"note: root@desk:{shared} is mounted at {point}, read-only")
    (first,) = mounted(fleet, "tower", point)
    assert first.endswith("fuse.sshfs")
    run = fleet.train()
    run.done()
    assert said(run, "data of desk Read-only file system") == 1, run.text
    until(lambda: said(walker, "the run is over") == 1, 20, lambda: walker.text)
    assert mounted(fleet, "tower", point) == [first], "used again"

    fleet.lab.cut("tower")
    until(lambda: said(walker, "cannot mount") or said(walker, "cannot fetch"), 60, lambda: walker.text)
    until(lambda: not mounted(fleet, "tower", point) or said(walker, "cannot fetch"), 60, lambda: walker.text)
    fleet.lab.heal("tower")
    until(
        lambda: (walker.err or [""])[-1].find("nothing listens") >= 0 or said(walker, "no run"), 60, lambda: walker.text
    )
    walker.process.terminate()
    assert walker.wait() < 0
    assert mounted(fleet, "tower", point) == [] and "Traceback" not in walker.text


def test_a_data_server_that_is_not_there_is_told_in_seconds_and_leaves_no_mount(fleet: Fleet) -> None:
    point = fleet.lab.home("tower") / "data"
    fleet.lab.cut("desk")
    data = ("--data-source", "sshfs://root@desk:/set", "--data-path", point)
    walker = fleet.join("tower", "desk", "--bin", sys.executable, "--devices", "cpu:1", *data)
    assert walker.wait(20) == 1, walker.text
    assert said(walker, "cannot mount root@desk:/set") and said(walker, "fix: try by hand: sshfs "), walker.text
    assert mounted(fleet, "tower", point) == []


LOGGING = """\
#!/bin/sh
for word; do printf '%s\\n' "$word"; done > '{log}/{name}'
{then}
"""


def test_one_port_and_one_key_hold_for_the_forward_the_source_and_the_data(fleet: Fleet) -> None:
    """Programs of these names write down their words; the mount and the copy are then made by other means."""
    fleet.publish()
    fakes, log = fleet.lab.home("tower") / "bin", fleet.lab.home("tower") / "typed"
    for folder in (fakes, log):
        folder.mkdir()
    then = {
        "sshfs": 'mount -t tmpfs none "$3" && exec sleep 600',
        "rsync": f'for last; do :; done; cp -a {fleet.served}/tree/. "$last"',
        "ssh": "exit 1",
    }
    for name, line in then.items():
        (fakes / name).write_text(LOGGING.format(log=log, name=name, then=line))
        (fakes / name).chmod(0o755)
    walker = fleet.join(
        "tower", "--ssh", "u@desk:2222", "--identity", fleet.key("tower"), "--devices", "cpu:1",
        "--source", "rsync://u@desk:/tree", "--data-source", "sshfs://u@desk:/set",
        "--data-path", fleet.lab.home("tower") / "data", env={"PATH": f"{fakes}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert walker.wait() == 1, walker.text
    for name in then:
        typed = (log / name).read_text()
        assert "2222" in typed and str(fleet.key("tower")) in typed, f"{name}: {typed}"
    assert mounted(fleet, "tower", fleet.lab.home("tower") / "data") == []


def test_a_rehearsal_pulls_builds_and_says_which_run_it_would_train(fleet: Fleet) -> None:
    fleet.open_door(start="manual")
    report = fleet.publish()
    run = fleet.train()
    road = ("--ssh", "root@desk", "--identity", fleet.key("tower"), "--devices", "cpu:1")
    walker = fleet.join("tower", *road, "--source", "rsync://root@desk:/tree", "--try", "--json")
    assert walker.wait() == 0, walker.text
    rehearsal = json.loads("\n".join(walker.out))
    assert (rehearsal["admitted"], rehearsal["run"]) == (True, report["run"])
    assert rehearsal["program"][1:] == [str(fleet.copy("tower") / "train.py")]
    run.interrupt()
    run.wait()


@pytest.mark.parametrize(
    ("build", "code", "says"),
    [
        (
            'gcc -c none.c || { echo "x.c:1:10: fatal error: hip/hip_runtime.h: No such file"; exit 1; }',
            2,
            "is not on this box",
        ),
        ("echo nope; exit 3", 1, "exit 3; its last lines:"),
    ],
)
def test_a_build_that_fails_here_is_worth_another_dial_unless_this_box_lacks_something(
    fleet: Fleet, build: str, code: int, says: str
) -> None:
    fleet.publish("--no-build", "--build", build)
    road = ("--ssh", "root@desk", "--identity", fleet.key("tower"), "--devices", "cpu:1")
    walker = fleet.join("tower", *road, "--source", "rsync://root@desk:/tree")
    assert walker.wait() == code, walker.text
    assert said(walker, says) and said(walker, "published with --no-build"), walker.text

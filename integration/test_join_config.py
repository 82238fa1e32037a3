"""A farm set up by `fdl join-config`: real doors that hold and tampered ones that do not, and worlds of walk-ins behind
them, with nothing typed but what the tools print.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.farm import PORT, Desk
from integration.project import BIN
from integration.until import until
from tools.lab import Lab
from tools.lab.host import sh

RRSYNC = Path("/usr/bin/rrsync")
SHUT = ("OPEN", "SHUT")


@pytest.fixture(scope="module")
def hosts(lab_possible: None) -> Iterator[Desk]:
    if not RRSYNC.exists():
        pytest.skip("no rrsync here: apt install rsync")
    with Lab(["desk", "tower", "attic"]) as lab:
        yield Desk(lab)


@pytest.fixture
def desk(hosts: Desk) -> Iterator[Desk]:
    hosts.new_project()
    yield hosts
    hosts.end()


def line_of(desk: Desk) -> Path:
    return desk.home / ".ssh/authorized_keys"


def tamper(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, text
    path.write_text(text.replace(old, new))


def test_the_run_s_door_lets_workers_pull_and_forward_and_nothing_else(desk: Desk) -> None:
    desk.set_up("b")
    code, tried = desk.tried()
    assert code == 0 and set(tried.values()) == {"held"}, tried
    tamper(line_of(desk), "rrsync -ro", "rrsync")
    assert desk.tried() == (1, {**tried, "write by rsync": "OPEN"})
    tamper(line_of(desk), f"rrsync {desk.home}/.flodl/run", "rrsync -ro /")
    code, found = desk.tried()
    assert code == 1 and found["tree"] == "OPEN", found
    desk.config("--install-key")
    assert desk.tried() == (0, tried)


def test_the_line_and_the_drop_in_are_each_a_wall_and_without_both_all_is_open(desk: Desk) -> None:
    desk.set_up("nologin")
    code, tried = desk.tried()
    assert code == 0 and set(tried.values()) == {"held"}, tried
    dropin, line = desk.home / "etc-ssh/sshd_config.d/flodl-lab.conf", line_of(desk)
    guarded = dropin.read_text()
    dropin.write_text(f"Port 22\nPort {PORT}\n")
    desk.reload()
    assert desk.tried() == (0, tried)
    line.write_text(bare(line.read_text()))  # as somebody's hand may have pasted it
    code, found = desk.tried()
    opened = {name for name, state in found.items() if state == "OPEN"}
    assert code == 1 and opened == set(tried) - {"forward"}, found
    dropin.write_text(guarded)
    desk.reload()
    assert desk.tried() == (0, tried)


def bare(keys: str) -> str:
    """The farm's line without its options."""
    cut = (line.partition(" ssh-ed25519") if "restrict" in line else ("", "", line) for line in keys.splitlines(True))
    return "".join(f"{mark.lstrip()}{rest}" for _, mark, rest in cut)


def test_the_data_s_door_shows_the_data_and_says_how_far_it_reaches(desk: Desk) -> None:
    set_up_data(desk)
    code, tried = desk.tried()
    assert code == 0, tried
    assert tried.pop("beyond the data") == "note" and set(tried.values()) == {"held"}
    tamper(line_of(desk), "internal-sftp -R", "internal-sftp")
    code, found = desk.tried()
    assert (code, found["write by sftp"]) == (1, "OPEN")


def set_up_data(desk: Desk) -> dict[str, Any]:
    """Door a, with data of desk's own in place of /flodl/data."""
    data = desk.home / "pictures"
    data.mkdir(exist_ok=True)
    (data / "one").write_text("1")
    desk.config("--door", "a", "--controller", f"root@desk:{PORT}", "--yes")
    overlay = desk.folder / "fdl.lab.yml"
    overlay.write_text(overlay.read_text().replace("    path:", f"    data_path: {data}\n    path:"))
    return desk.set_up("a")


@pytest.mark.parametrize("door", ["a", "nologin"])
def test_a_worker_of_the_other_doors_trains_what_it_has_on_data_it_mounts(desk: Desk, door: str) -> None:
    if door == "a" and not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse here: nothing can be mounted")
    report = set_up_data(desk) if door == "a" else desk.set_up(door)
    point = desk.lab.home("tower") / "pictures"
    point.mkdir(exist_ok=True)
    words = ("--data-path", str(point)) if door == "a" else ()
    run = desk.start("desk", "fdl", "@lab", "train")
    until(lambda: run.state(), 30, lambda: run.text)
    worker = desk.equip(report, "tower", "--devices", "cpu:2", *words)
    until(lambda: (now := run.state()) and now.joined_ranks == 2, 40, lambda: run.text + worker.text)
    assert desk.lab.run("tower", "ls", point).stdout == ("one\n" if door == "a" else "")
    assert desk.fdl("@lab", "start").returncode == 0
    run.done()
    assert run.result()["samples"] == 2 * 240


def test_a_key_that_is_not_let_in_is_said_once_with_the_line_that_lets_it_in(desk: Desk) -> None:
    desk.set_up("nologin")
    tamper(line_of(desk), "permitopen", 'expiry-time="19990101",permitopen')
    done = desk.fdl("join-config", "lab", "--test")
    assert done.returncode == 1
    assert "root is not let in with the farm's key" in done.stdout and "--install-key" in done.stdout


def test_two_workers_equipped_as_printed_walk_in_train_and_go(desk: Desk) -> None:
    report = desk.set_up("b")
    run = desk.start("desk", "fdl", "@lab", "train")
    workers = [desk.equip(report, host) for host in ("tower", "attic")]
    held = run.phase("staging")
    assert {member.road for member in held.members} <= {"ssh"}
    until(lambda: (now := run.state()) and now.joined_ranks == 2, 40, lambda: run.text)
    assert desk.fdl("@lab", "start").returncode == 0
    run.done()
    assert run.result()["samples"] == 2 * 240
    for worker in workers:
        worker.line("the run is over; dialling again")
    pulled = {path.name for path in (desk.lab.home("tower") / ".flodl/source/tree").rglob("*")}
    assert "train.py" in pulled and not pulled & {"join_key", "worker.yml"}, "a farm's secrets are not published"


@pytest.mark.timeout(300)  # torch is loaded by both
def test_a_newcomer_gets_from_a_bare_folder_to_a_trained_model_by_what_is_printed(desk: Desk) -> None:
    """With torch; one worker equipped by hand, the other an instance that boots."""
    sh("rm", "-rf", desk.folder)
    told = desk.lab.run("desk", BIN / "fdl", "init", desk.folder.name, cwd=desk.home, env=desk.environment())
    assert "fdl train" in told.stderr
    report = desk.set_up("b", "--cloud-init")
    assert report["steps"][-1]["commands"] == ["fdl @lab train", "fdl @lab status", "fdl @lab start"]
    run = desk.start("desk", "fdl", "@lab", "train", "--epochs", "2")
    workers = [desk.equip(report, "tower"), desk.boot("attic")]
    all_said = lambda: "\n".join(each.text for each in (run, *workers))  # noqa: E731
    until(lambda: (now := run.state()) and now.joined_ranks == 2, 40, all_said)
    assert "attic" in desk.fdl("@lab", "status").stdout
    assert desk.fdl("@lab", "start").returncode == 0
    run.done(90)
    assert (desk.folder / "runs/latest/checkpoint.safetensors").stat().st_size > 1000

"""A run published on one host and fetched by another, over a real sshd and a key that may only read what is served."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.project import BIN
from integration.until import until
from tools.lab import Lab, Link
from tools.lab.host import sh

TOOL = BIN / "flodl-publish"
BIG = 12_000_000  # bytes: over two seconds on this link
RRSYNC = "/usr/bin/rrsync"
IMPATIENT = ("--ssh-option", "ServerAliveInterval=1")  # a cut link is seen in 3 s, not in 30


@dataclass
class Fleet:
    """desk publishes, tower fetches with the worker's key."""

    lab: Lab

    @property
    def project(self) -> Path:
        return self.lab.home("desk") / "my project"

    @property
    def served(self) -> Path:
        return self.lab.home("desk") / ".flodl/run"

    @property
    def copy(self) -> Path:
        return self.lab.home("tower") / ".flodl/source/tree"

    @property
    def fetch_words(self) -> list[str]:
        return [
            "fetch",
            "rsync://root@desk:/tree",
            "--identity",
            str(self.lab.home("tower") / "worker"),
            "--json",
            *IMPATIENT,
        ]

    def publish(self, *words: str) -> dict[str, Any]:
        return self.answer(self.lab.run("desk", TOOL, *self.publish_words(*words), cwd=self.project, timeout=60))

    def publish_words(self, *words: str) -> list[str]:
        return ["publish", f"file://{self.project}", "--bin", "train.py", "--json", *words]

    def fetch(self, *words: str) -> dict[str, Any]:
        return self.answer(self.lab.run("tower", TOOL, *(words or self.fetch_words), timeout=60))

    @staticmethod
    def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        assert "Traceback" not in done.stderr, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.project / name.replace("__", ".")).write_text(text)


@pytest.fixture(scope="module")
def lab(lab_possible: None) -> Iterator[Lab]:
    if not Path(RRSYNC).exists():
        pytest.skip("no rrsync here: apt install rsync")
    with Lab({"desk": Link(rate="40mbit"), "tower": Link(rate="40mbit")}) as made:
        key = made.home("tower") / "worker"
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        guard = f'restrict,command="{RRSYNC} -ro {made.home("desk")}/.flodl/run" {key.with_suffix(".pub").read_text()}'
        with (made.home("desk") / ".ssh/authorized_keys").open("a") as keys:
            keys.write(guard)
        yield made


@pytest.fixture
def fleet(lab: Lab) -> Iterator[Fleet]:
    made = Fleet(lab)
    sh("rm", "-rf", made.project, made.served, made.copy.parent)
    made.project.mkdir()
    made.write(train__py="import model\n", model__py="x = 1\n")
    yield made
    lab.heal("tower")


def shipped(project: Path) -> dict[str, str]:
    """What `git ls-files` would ship, by an eye of its own: path → mode and content, or target."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=project, capture_output=True, check=True).stdout
    return look(project, sorted({os.fsdecode(name) for name in listed.split(b"\0") if name}))


def present(copy: Path) -> dict[str, str]:
    own = (".fdl-run.yml", ".fdl-run.sha256")
    paths = (Path(folder, name) for folder, inner, names in os.walk(copy) for name in [*names, *inner])
    inside = (str(path.relative_to(copy)) for path in paths if path.is_symlink() or not path.is_dir())
    return look(copy, sorted(path for path in inside if path not in own))


def look(root: Path, paths: list[str]) -> dict[str, str]:
    found = {}
    for path in paths:
        whole = root / path
        if whole.is_symlink():
            found[path] = f"-> {whole.readlink()}"
        else:
            seen = whole.stat()
            found[path] = f"{seen.st_mode:o} {seen.st_mtime_ns} {hashlib.sha256(whole.read_bytes()).hexdigest()}"
    return found


def test_a_worker_with_a_read_only_key_gets_what_git_would_ship(fleet: Fleet) -> None:
    subprocess.run(["git", "init", "-q"], cwd=fleet.project, check=True)
    fleet.write(train__py="import model, secret\n", secret__py="", __gitignore="secret.py\nckpt/\n*.log\n!keep.log\n")
    fleet.write(**{"keep.log": "", "other.log": "", "a b\n\\ü": "odd", "-x": ""})
    for folder in ("ckpt", "sub", "Case"):
        (fleet.project / folder).mkdir()
    with (fleet.project / "ckpt/model.bin").open("wb") as checkpoint:
        checkpoint.truncate(2 << 30)  # two gigabytes that git ignores
    (fleet.project / "sub/run.sh").write_text("#!/bin/sh\n")
    (fleet.project / "sub/run.sh").chmod(0o755)
    (fleet.project / "Case/x").write_text("")
    (fleet.project / "link").symlink_to("sub/run.sh")
    (fleet.project / "dangling").symlink_to("nowhere")
    Path(os.fsdecode(os.fsencode(fleet.project) + b"/\xff")).write_text("raw")
    (fleet.project / "empty").mkdir()
    os.mkfifo(fleet.project / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:  # a path that long fits no socket's address but a relative one
        here = os.open(".", os.O_RDONLY)
        os.chdir(fleet.project)
        listening.bind("sock")
        os.fchdir(here)
        os.close(here)
    leaving = {"absolute": "/etc/passwd", "out": "../other", "by": "out/x"}
    for name, target in leaving.items():
        (fleet.project / name).symlink_to(target)
    report = fleet.publish("--", "--lr", "0.1")
    for name in leaving:
        assert any(each.startswith(f"{name} -> ") for each in report["warnings"]), report["warnings"]
    assert any("secret.py does not travel" in each and ".gitignore:1" in each for each in report["warnings"])
    assert "ckpt/" in {each["path"] for each in report["left_out"]}
    assert report["worker_specs"]["rrsync"] == "rsync://root@desk:/tree"
    answer = fleet.fetch()
    for name in leaving:
        (fleet.project / name).unlink()
    assert present(fleet.copy) == shipped(fleet.project)
    assert (answer["run"], answer["args"]) == (report["run"], ["--lr", "0.1"])

    (fleet.project / "Case").rename(fleet.project / "case")
    (fleet.project / "model.py").rename(fleet.project / "net.py")
    fleet.write(train__py="import net\n")
    (fleet.copy / "target").mkdir()
    (fleet.copy / "target/built").write_text("mine")
    second = fleet.publish()
    answer = fleet.fetch()
    assert answer["run"] == second["run"] != report["run"]
    got = present(fleet.copy)
    assert got.pop("target/built")
    assert got == shipped(fleet.project)


def test_a_large_history_and_ignored_checkpoints_cost_a_publish_nothing(fleet: Fleet) -> None:
    subprocess.run(["git", "init", "-q"], cwd=fleet.project, check=True)
    objects = fleet.project / ".git/objects"
    for number in range(20_000):
        folder = objects / f"{number % 256:02x}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number:038x}").write_text("")
    fleet.write(__gitignore="ckpt/\n")
    (fleet.project / "ckpt").mkdir()
    with (fleet.project / "ckpt/model.bin").open("wb") as checkpoint:
        checkpoint.truncate(2 << 30)
    began = time.monotonic()
    report = fleet.publish()
    assert time.monotonic() - began < 10
    assert report["files"] == 3 and {"path": "ckpt/", "why": "git ignores it"} in report["left_out"]


def test_a_plain_key_takes_the_absolute_path_and_the_guarded_one_only_its_folder(fleet: Fleet) -> None:
    report = fleet.publish()
    plain = ["fetch", report["worker_specs"]["plain"], "--json"]
    assert fleet.fetch(*plain)["run"] == report["run"]
    guarded = [*plain, "--identity", str(fleet.lab.home("tower") / "worker")]
    assert fleet.fetch(*guarded)["error"]["family"] == "transient"
    error = fleet.fetch("fetch", "rsync://nobody@desk:/tree", "--json")["error"]
    assert (error["family"], error["code"]) == ("transient", "unreachable")


def test_a_worker_that_comes_in_the_middle_waits_and_never_mixes_two_runs(fleet: Fleet, tmp_path: Path) -> None:
    first = fleet.publish()
    assert fleet.fetch()["run"] == first["run"]
    fleet.write(model__py="x = 2\n")
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    words = fleet.publish_words("--build", f"cat {fifo}")
    publish = fleet.lab.popen("desk", TOOL, *words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with fifo.open("w"):  # opens when the gate reads
        error = fleet.fetch()["error"]
        assert (error["family"], error["code"]) == ("transient", "no-manifest")
    second = json.loads(publish.communicate(timeout=60)[0])
    answer = fleet.fetch()
    assert answer["run"] == second["run"] != first["run"]
    assert (fleet.copy / "model.py").read_text() == "x = 2\n"


@pytest.mark.parametrize("end", ["cut", "kill"])
def test_a_transfer_that_ends_in_the_middle_leaves_no_run_and_the_next_one_is_right(fleet: Fleet, end: str) -> None:
    fleet.publish()
    fleet.fetch()
    (fleet.project / "big.bin").write_bytes(os.urandom(BIG))
    report = fleet.publish()
    fetch = fleet.lab.popen("tower", TOOL, *fleet.fetch_words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: any(fleet.copy.glob(".big.bin.*")), 20, "the big file never came under way")
    if end == "cut":
        fleet.lab.cut("tower")
        error = json.loads(fetch.communicate(timeout=60)[0])["error"]
        assert error["family"] == "transient"
        fleet.lab.heal("tower")
    else:
        fetch.kill()
        fetch.communicate(timeout=60)
    assert (fleet.copy.parent / ".publish/unfinished").exists()
    error = fleet.answer(fleet.lab.run("tower", TOOL, "build", "--json"))["error"]
    assert error["family"] == "transient"
    # a healed link takes a moment, and a refused connection is transient
    until(lambda: fleet.fetch().get("run") == report["run"], 30, "no fetch got through")
    assert set(present(fleet.copy)) == {"train.py", "model.py", "big.bin"}

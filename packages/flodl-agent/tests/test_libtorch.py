"""`flodl-agent libtorch`: a variant is there whole, or what was there before still is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import Box, wait_until

from flodl_wire import environ, libtorch

Standin = Callable[..., Path]
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


# pip as far as it is asked here, without the second of processor time that it takes to start.
FAKE_PIP = """
import json, os, pathlib, sys, zipfile
words = dict(zip(sys.argv, [*sys.argv[1:], ""]))
wheels = sorted(pathlib.Path(words["--find-links"]).glob("torch-*.whl"))
if not wheels:
    sys.exit("ERROR: No matching distribution found for torch")
named = {"name": "torch", "version": wheels[0].name.split("-")[1]}
if "--dry-run" in words:
    entry = {"metadata": named, "download_info": {"url": wheels[0].as_uri()}}
    pathlib.Path(words["--report"]).write_text(json.dumps({"install": [entry]}))
else:
    zipfile.ZipFile(wheels[0]).extractall(words["--target"])
"""


class Torches:
    """`flodl-agent libtorch` typed on a box whose pip knows nothing but a folder of wheels."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.root = box.root / ".flodl/libtorch"
        self.wheels = box.root / "wheels"
        self.project: Path | None = None
        self.fake = box.root / "fake"
        (self.fake / "pip").mkdir(parents=True)
        (self.fake / "pip/__main__.py").write_text(FAKE_PIP)
        (self.fake / "pip/__init__.py").write_text("")

    def environment(self) -> dict[str, str]:
        more = {**OFFLINE, "PYTHONPATH": str(self.fake)} if self.fake.exists() else dict(OFFLINE)
        if self.project:
            more[environ.CONFIG_JSON] = json.dumps({"manifest": str(self.project / "fdl.yml")}).encode().hex()
        return self.box.environment(**more)

    def words(self, *words: str) -> list[str]:
        return [str(self.box.bin / "flodl-agent"), "libtorch", *words]

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.words(*words), env=self.environment(), cwd=self.box.root, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def answer(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.type(*words, "--json").stdout)
        return answer

    @property
    def download(self) -> list[str]:
        return ["download", "--cpu", "--find-links", str(self.wheels)]

    def put(self, name: str, root: Path | None = None, arch: str = "torch=1\n") -> Path:
        folder = (root or self.root) / name
        (folder / "lib").mkdir(parents=True)
        (folder / ".arch").write_text(arch)
        return folder


@pytest.fixture
def torches(box: Box) -> Torches:
    return Torches(box)


def test_a_download_by_pip_is_tried_described_and_made_the_active_one(torches: Torches, standin_wheel: Standin) -> None:
    shutil.rmtree(torches.fake)
    wheel = standin_wheel(torches.wheels)
    answer = torches.answer(*torches.download)
    assert (answer["name"], answer["torch"], answer["active"], answer["fetched"]) == (
        "precompiled/cpu", wheel.name.split("-")[1], True, True,
    )  # fmt: skip
    folder = torches.root / "precompiled/cpu"
    assert (folder / "lib").readlink() == Path("site/torch/lib") and (folder / "lib/libtorch.so").exists()
    assert "python=cp3" in (folder / ".arch").read_text() and "cuda=none" in (folder / ".arch").read_text()
    assert (torches.root / ".active").read_text() == "precompiled/cpu\n"
    assert torches.answer(*torches.download)["fetched"] is False, "it is there"


def test_one_that_does_not_work_here_leaves_the_one_that_was_there(torches: Torches, standin_wheel: Standin) -> None:
    standin_wheel(torches.wheels)
    torches.answer(*torches.download)
    before = sorted(path.name for path in torches.root.rglob("*"))
    standin_wheel(torches.wheels, total="7.0")
    done = torches.type(*torches.download, "--force", "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["error"]["code"] == "smoke-test"
    assert "it does not work here: AssertionError" in done.stderr
    assert sorted(path.name for path in torches.root.rglob("*")) == before, "what was there is there"


def test_another_build_than_asked_for_is_refused_and_not_kept(torches: Torches, standin_wheel: Standin) -> None:
    standin_wheel(torches.wheels, cuda="13.0")
    error = torches.answer(*torches.download)["error"]
    assert (error["family"], error["code"]) == ("refused", "other-build")
    assert error["why"] == "what pip gave is torch for cu130"
    assert not list((torches.root / "precompiled").iterdir()) and not (torches.root / ".active").exists()


def test_killed_in_the_middle_it_leaves_nothing_that_the_next_one_does_not_sweep(
    torches: Torches, standin_wheel: Standin
) -> None:
    standin_wheel(torches.wheels, total="__import__('time').sleep(600)")
    typed = subprocess.Popen(
        torches.words(*torches.download), env=torches.environment(), stderr=subprocess.DEVNULL, start_new_session=True
    )
    parts = torches.root / "precompiled"
    wait_until(lambda: next(parts.glob(".*.part/lib"), None), "the smoke test")
    os.killpg(typed.pid, signal.SIGKILL)
    typed.wait()
    assert list(parts.glob(".*.part"))
    standin_wheel(torches.wheels)
    assert torches.answer(*torches.download)["active"]
    assert [path.name for path in parts.iterdir()] == ["cpu"]


def test_told_to_stop_it_takes_back_what_it_began(torches: Torches, standin_wheel: Standin) -> None:
    standin_wheel(torches.wheels, total="__import__('time').sleep(600)")
    typed = subprocess.Popen(
        torches.words(*torches.download), env=torches.environment(), stderr=subprocess.DEVNULL, start_new_session=True
    )
    parts = torches.root / "precompiled"
    wait_until(lambda: next(parts.glob(".*.part/lib"), None), "the smoke test")
    os.killpg(typed.pid, signal.SIGINT)
    assert typed.wait() == 130
    assert not list(parts.iterdir())


def test_the_list_names_what_is_here_and_what_holds(torches: Torches) -> None:
    assert "no libtorch variant in" in torches.type("list").stdout
    torches.put("precompiled/cpu")
    torches.put("builds/sm61", arch="torch=2.9\npython=cp311\narchs=sm_61\n")
    assert torches.type("use", "sm61").returncode == 0
    rows = {row["name"]: row for row in torches.answer("list")["variants"]}
    assert rows["builds/sm61"]["active"] and not rows["precompiled/cpu"]["active"]
    assert "* builds/sm61      torch 2.9, cp311, sm_61" in torches.type("list").stdout


def test_in_a_project_its_own_variants_hold_and_a_host_may_have_a_pointer_of_its_own(torches: Torches) -> None:
    torches.project = torches.box.project
    torches.put("precompiled/cpu")
    torches.put("precompiled/cu128", torches.box.project / "libtorch")
    torches.type("use", "cu128")
    done = torches.type("use", "precompiled/cpu")
    assert "still goes ahead of it here" in done.stderr and "not the active one here" in done.stdout
    torches.put("builds/x", torches.box.project / "libtorch")
    torches.type("use", "builds/x", "--case", "tower")
    assert (torches.box.project / "libtorch/.active.tower").read_text() == "builds/x\n"
    assert (torches.box.project / "libtorch/.active").read_text() == "precompiled/cu128\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("download",), 2, "name one"),
        (("download", "cpu", "--cpu"), 2, "name one"),
        (("download", "builds/x"), 1, "a build of somebody's own"),
        (("download", "cuda"), 1, "there is no build of that name"),
        (("use", "none"), 1, "there is no such variant here"),
        (("use", "/tmp"), 1, "there is no such variant here"),
        (("download", "cpu", "--case", "a/b"), 2, "would be a path"),
        (("fetch",), 2, "invalid choice"),
        (
            ("download", "--cpu", "--torch", "9.9", "--find-links", "/not/there"),
            1,
            "no index that was asked has torch",
        ),
    ],
)
def test_what_cannot_be_meant_is_said_in_words(torches: Torches, words: tuple[str, ...], code: int, said: str) -> None:
    done = torches.type(*words)
    assert done.returncode == code and said in done.stderr, done.stderr
    assert not done.stdout


def test_a_root_that_is_a_file_is_named(torches: Torches) -> None:
    (torches.box.root / ".flodl").write_text("")
    done = torches.type(*torches.download)
    assert done.returncode == 1 and f"cannot keep a libtorch variant in {torches.root}" in done.stderr


def test_auto_asks_the_probe(torches: Torches) -> None:
    torches.box.script("flodl-probe", 'print(\'{"devices": [], "notes": []}\')')
    torches.put("precompiled/cpu")
    answer = torches.answer("download", "auto")
    assert (answer["name"], answer["fetched"]) == ("precompiled/cpu", False)
    assert libtorch.pointed(torches.root / ".active") == "precompiled/cpu"

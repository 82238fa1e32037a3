"""What a walk-in's box must have before anybody is dialled: each step a fact or a fault, in the reference's order."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import Box

from flodl_agent import data_mount, mounts, pulled_run, stage, torch_fit
from flodl_agent.cli_join import parser
from flodl_agent.join_attempt import is_permanent
from flodl_agent.join_recipe import Recipe, settle
from flodl_agent.preparation import Preparation
from flodl_wire import sibling
from flodl_wire.faults import Broken, Fault, Refused, Transient
from flodl_wire.join_block import parse_join
from flodl_wire.join_messages import DeviceOffer
from flodl_wire.libtorch import Variant

PUBLISH = """
import json, os, sys
box = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
with open(box + "/typed", "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
answer = json.load(open(f"{box}/{sys.argv[1]}.json"))
print(json.dumps(answer))
sys.exit(1 if "error" in answer else 0)
"""
FETCHED = {
    "tree": "/t", "published": True, "bin": "train.py", "cwd": "sub", "build": "", "args": ["--lr", "1"],
    "run": "ab" * 16, "files": 3, "notes": ["this run is 3 days old"],
}  # fmt: skip
BUILT = {
    "bin": "/t/sub/train.py",
    "cwd": "/t/sub",
    "args": ["--lr", "1"],
    "run": "ab" * 16,
    "python": "/t/.venv/python",
}


class Worker:
    """A box with a flodl-publish that answers as it is told to."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.said: list[str] = []
        box.script("flodl-publish", PUBLISH)
        self.answers(FETCHED, BUILT)

    def answers(self, fetched: dict[str, Any], built: dict[str, Any]) -> None:
        for verb, answer in (("fetch", fetched), ("build", built)):
            (self.box.root / f"{verb}.json").write_text(json.dumps(answer))

    def recipe(self, *words: str, tail: list[str] | None = None, **block: object) -> Recipe:
        flags = parser().parse_args(["ctrl", "--devices", "cpu:1", *words])
        return settle(flags, tail, parse_join(block), "box-7", str(self.box.project))

    def preparation(self, *words: str, tail: list[str] | None = None, **block: object) -> Preparation:
        return Preparation(self.recipe(*words, tail=tail, **block), self.said.append)

    @property
    def typed(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.box.root / "typed").read_text().splitlines()]


@pytest.fixture
def worker(box: Box, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setenv("HOME", str(box.root))
    monkeypatch.setattr(sibling, "require", lambda name: str(box.bin / name))
    return Worker(box)


def test_a_published_run_says_what_to_run_and_with_which_arguments(worker: Worker) -> None:
    preparation = worker.preparation("--source", "rsync://op@desk:/tree", tail=["--lr", "9"])
    prepared = preparation.prepare()
    assert prepared.program == ["/t/.venv/python", "/t/sub/train.py"] and prepared.script == "/t/sub/train.py"
    assert (prepared.folder, prepared.args, prepared.run) == ("/t/sub", ["--lr", "1"], "ab" * 16)
    place = f"{worker.box.root}/.flodl/source"
    assert worker.typed == [
        ["fetch", "rsync://op@desk:/tree", "--to", place, "--json", "--quiet"],
        ["build", place, "--json"],
    ]
    preparation.prepare()
    assert worker.typed[3] == ["build", place, "--json", "--quiet"], "its output was seen"
    assert worker.said == [
        "note: pulling rsync://op@desk:/tree",
        "note: this run is 3 days old (run abababab)",
        "run abababab is here and built: train.py",
    ], "each is told once"


def test_a_run_published_without_arguments_takes_those_that_the_controller_states(worker: Worker) -> None:
    worker.answers({**FETCHED, "args": []}, {**BUILT, "args": []})
    assert worker.preparation("--source", "file:///t", tail=["--mine"]).prepare().args is None


def test_what_nobody_published_is_built_and_run_by_this_boxs_own_recipe(worker: Worker) -> None:
    bare = {"published": False, "bin": "prog", "cwd": "", "build": "make", "args": [], "run": ""}
    worker.answers({**FETCHED, **bare, "notes": []}, {**BUILT, "bin": "/t/prog", "python": "", "args": [], "run": ""})
    source = {"from": "git+https://h/r#v1", "bin": "prog", "build": "make", "cwd": "sub"}
    prepared = worker.preparation("--source-cwd", "other", source=source, tail=["--mine"]).prepare()
    assert (prepared.program, prepared.script, prepared.args, prepared.run) == (["/t/prog"], "", ["--mine"], "")
    own = ["--bin", "prog", "--cwd", "other", "--build", "make"]
    assert [words[-6:] for words in worker.typed] == [own, own]


@pytest.mark.parametrize("verb", ["fetch", "build"])
@pytest.mark.parametrize(("family", "kind"), [("transient", Transient), ("broken", Broken), ("refused", Refused)])
def test_what_pulling_or_building_says_decides_whether_to_dial_again(
    worker: Worker, verb: str, family: str, kind: type[Fault]
) -> None:
    error = {"error": {"family": family, "code": "c", "what": "cannot", "why": "because", "fix": "do"}}
    worker.answers(error if verb == "fetch" else FETCHED, error)
    with pytest.raises(kind, match="cannot: because") as caught:
        worker.preparation("--source", "file:///t").prepare()
    assert is_permanent(caught.value) is (family == "refused") and caught.value.fix == "do"


def test_a_tool_that_answers_in_no_words_of_ours_is_worth_another_try(worker: Worker) -> None:
    worker.box.script("flodl-publish", "raise SystemExit(3)")
    with pytest.raises(Broken, match="it ended with 3 and gave no answer"):
        worker.preparation("--source", "file:///t").prepare()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("rsync://u@ctrl:/tree", ["Port=2222"]),
        ("rsync://ctrl:/tree", ["Port=2222", "User=u"]),
        ("rsync://ctrl:99:/tree", ["User=u"]),
        ("git+ssh://ctrl/r.git#v1", ["Port=2222", "User=u"]),
        ("git+ssh://me@ctrl:9/r.git#v1", []),
        ("rsync://other:/tree", []),
        ("git+https://ctrl/r#v1", []),
    ],
)
def test_on_the_host_of_the_forward_its_port_user_and_key_hold_for_every_call(
    worker: Worker, source: str, words: list[str]
) -> None:
    block = {"target": "ctrl", "port": 2222, "user": "u", "identity_file": "/k", "options": ["Compression=yes"]}
    recipe = worker.recipe("--data-source", "sshfs://ctrl:/data", ssh=block, source={"from": source})
    given = pulled_run.fetch_words(recipe)
    assert given[given.index("--identity") + 1] == "/k"
    options = [given[at + 1] for at, word in enumerate(given) if word == "--ssh-option"]
    assert options == ["Compression=yes", *words]
    assert recipe.data_source is not None and recipe.data_path == "/flodl/data"
    argv = data_mount.mount_argv(recipe.data_source, recipe.data_path, recipe.identity, recipe.ssh_options)
    assert argv[:6] == ["sshfs", "-f", "u@ctrl:/data", "/flodl/data", "-p", "2222"]
    assert argv[6:12] == ["-o", "Compression=yes", "-o", "IdentityFile=/k", "-o", "ro"]
    for option in ("reconnect", "ServerAliveInterval=15", "ServerAliveCountMax=3", "BatchMode=yes"):
        assert argv[argv.index(option) - 1] == "-o"


def test_an_identity_needs_something_that_it_is_the_key_for(worker: Worker) -> None:
    assert worker.recipe("--identity", "/k", "--source", "rsync://h:/t").identity == "/k"
    with pytest.raises(Refused, match="none of them is named"):
        worker.recipe("--identity", "/k", "--bin", "t.py")


def test_a_typed_program_outranks_the_blocks_source_and_the_other_way_round(worker: Worker) -> None:
    recipe = worker.recipe("--bin", "t.py", source={"from": "file:///x"})
    assert recipe.source is None and recipe.program == ["t.py"]
    recipe = worker.recipe("--source", "file:///x", bin="t.py")
    assert recipe.source is not None and recipe.program == []


VARIANT = Variant("precompiled/cu128", Path("/v"), {"cuda": "12.8", "archs": "sm_90"})


@pytest.mark.parametrize("offered", [["sm61"], ["sm61", "sm70"], ["gfx942"]])
def test_a_variant_with_code_for_none_of_the_devices_is_refused_by_name(offered: list[str]) -> None:
    devices = [DeviceOffer("cuda", index, arch=arch) for index, arch in enumerate(offered)]
    with pytest.raises(Refused) as caught:
        torch_fit.check_devices(VARIANT, devices)
    assert all(f"{index} (cuda, {arch})" in caught.value.what for index, arch in enumerate(offered))
    assert (caught.value.why, "--devices" in caught.value.fix) == ("it was compiled for sm_90", False)


@pytest.mark.parametrize(
    ("others", "fix"), [([DeviceOffer("cuda", 0, arch="sm90")], "0"), ([DeviceOffer("cpu", 0)], "cpu:0")]
)
def test_a_device_without_code_beside_one_that_has_some_is_named_and_offered(
    others: list[DeviceOffer], fix: str
) -> None:
    (note,) = torch_fit.check_devices(VARIANT, [*others, DeviceOffer("cuda", 1, arch="sm61")])
    assert "on device 1 (cuda, sm61)" in note and f"--devices {fix}, or" in note


def test_what_nobody_knows_gates_nothing() -> None:
    for arch in ({"archs": "sm_90"}, {"cuda": "12.8"}, {"cuda": "12.8", "archs": "sm_50 compute_50"}):
        torch_fit.check_devices(Variant("precompiled/x", Path("/v"), arch), [DeviceOffer("cuda", 0, arch="sm61")])
    torch_fit.check_devices(None, [DeviceOffer("cuda", 0, arch="sm61")])
    wanted = Variant("precompiled/cu128", Path("/v"), {"cuda": "12.8", "archs": "sm_90"})
    torch_fit.check_devices(wanted, [DeviceOffer("cpu", 0), DeviceOffer("cuda", 0)])


def test_the_python_of_the_runs_own_environment_is_the_one_that_must_fit(tmp_path: Path) -> None:
    (tmp_path / "v/site").mkdir(parents=True)
    (tmp_path / "v/lib").mkdir()
    variant = Variant("precompiled/cpu", tmp_path / "v", {"python": "cp39"})
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.9.18\n")
    torch_fit.check_python(variant, [f"{tmp_path}/venv/bin/python", "t.py"])
    with pytest.raises(Refused, match="it is for cp39"):
        torch_fit.check_python(variant, ["python", "t.py"])


def test_the_active_variant_reaches_the_program_and_a_wrong_one_nobody(worker: Worker) -> None:
    (worker.box.project / "t.py").write_text("")
    folder = worker.box.root / ".flodl/libtorch/precompiled/cpu"
    for inner in ("lib", "site"):
        (folder / inner).mkdir(parents=True)
    (folder / ".arch").write_text("torch=2.13.0+cpu\n")
    (folder.parent.parent / ".active").write_text("precompiled/cpu")
    prepared = worker.preparation("--bin", "t.py").prepare()
    assert prepared.variant is not None and prepared.variant.label == "cpu"
    assert prepared.environment["PYTHONPATH"].startswith(f"{folder}/site")
    assert worker.preparation("--bin", "t.py", "--libtorch", "cpu").prepare().variant == prepared.variant
    assert worker.preparation("--bin", "t.py", "--libtorch", "auto").prepare().variant == prepared.variant
    worker.preparation("--source", "file:///t", libtorch="cpu").prepare()
    assert worker.typed[-1][-2:] == ["--libtorch", str(folder)]
    (folder / ".arch").write_text("torch=2.13.0+cpu\npython=cp27\n")
    with pytest.raises(Refused, match="it is for cp27"):
        worker.preparation("--bin", "t.py").prepare()


def test_folders_that_ranks_write_to_are_proven_by_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    stage.check()
    assert list((tmp_path / ".flodl/data").iterdir()) == [], "the proof is taken away"
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot write to"):
        stage.prove(tmp_path / "file/sub")
    (tmp_path / f".flodl-probe-{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(Broken, match="no space left"):
        stage.prove(tmp_path)


def test_a_folder_in_memory_and_a_disk_that_is_nearly_full_are_only_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "listed", lambda given: [mounts.Mount("/", "tmpfs", "tmpfs")])
    monkeypatch.setattr(stage, "LOW", 1 << 60)
    said = stage.notes(tmp_path)
    assert len(said) == 2 and "lies in memory (tmpfs)" in said[0] and "MB left" in said[1]


def test_the_kernels_list_of_mounts_is_read_with_its_odd_names() -> None:
    text = (
        b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        b"90 22 0:50 / /data\\040set ro,nosuid shared:1 - fuse.sshfs op@desk:/flodl/data ro,user_id=0\n"
        b"91 22 0:51 / /data\\040set rw - tmpfs tmpfs rw\n"
        b"broken line\n"
    )
    found = mounts.parse(text)
    assert found[1] == mounts.Mount("/data set", "fuse.sshfs", "op@desk:/flodl/data")
    there = mounts.at("/data set", found)
    assert there is not None and there.kind == "tmpfs", "the later one is seen"
    assert mounts.at("/data", found) is None
    for path, point in (("/data set/x", "/data set"), ("/data settle", "/"), ("/", "/")):
        holding = mounts.holding(path, found)
        assert holding is not None and holding.point == point


def test_a_data_folder_is_looked_into_before_anybody_is_dialled(tmp_path: Path) -> None:
    data_mount.check_root(str(tmp_path))
    with pytest.raises(Refused, match="there is no such folder"):
        data_mount.check_root(f"{tmp_path}/none")
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="there is no such folder"):
        data_mount.check_root(f"{tmp_path}/file")


def test_a_box_without_sshfs_is_told_what_to_install(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    (worker.box.project / "t.py").write_text("")
    monkeypatch.setenv("PATH", "/nowhere")
    data = str(worker.box.root / "data")
    with pytest.raises(Refused) as caught:
        worker.preparation("--bin", "t.py", "--data-source", "sshfs://h:/d", "--data-path", data).prepare()
    assert caught.value.fix == "apt install sshfs"


@pytest.mark.parametrize(
    ("prints", "kind", "said"),
    [
        ("read: Connection reset by peer", Transient, "read: Connection reset by peer"),
        ("u@h:/d: No such file or directory", Transient, "there is no folder /d there"),
        ("fuse: unknown option(s): `-o Compresion=yes'", Refused, "unknown option"),
    ],
)
def test_what_sshfs_says_is_passed_on_and_nothing_is_left(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, prints: str, kind: type[Fault], said: str
) -> None:
    fake = worker.box.script("sshfs", f"import sys\nprint({prints!r}, file=sys.stderr)\nsys.exit(1)")
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    data = str(worker.box.root / "data")
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse here: nothing can be mounted")
    with pytest.raises(kind, match="cannot mount u@h:/d") as caught:
        worker.preparation("--bin", "t", "--data-source", "sshfs://u@h:/d", "--data-path", data).prepare()
    assert said in str(caught.value)
    assert mounts.at(data) is None

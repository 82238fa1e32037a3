"""Building from a stand-in source tree: once with this box's nvcc where there is one, else with a stand-in."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ncclbuild_box import TREE, Box, needs_build

from flodl_ncclbuild import contents, library, toolchain
from flodl_wire.faults import Fault

pytestmark = needs_build
WORDS = ("build", "--native", "--source", str(TREE))


def real_toolkit() -> toolchain.Toolchain | None:
    try:
        return toolchain.find()
    except Fault:
        return None


def left(box: Box) -> list[str]:
    return sorted(path.name for path in box.builds.iterdir()) if box.builds.exists() else []


@pytest.mark.skipif(real_toolkit() is None, reason="no nvcc here")
def test_the_real_nvcc_builds_the_stand_in_tree_from_end_to_end(box: Box) -> None:
    toolkit = real_toolkit()
    assert toolkit is not None
    first, last = sorted(toolkit.archs)[0], sorted(toolkit.archs)[-1]
    answer = box.run(*WORDS, "--archs", f"sm{last};sm{first}", "--jobs", "2", CUDA_HOME=str(toolkit.home))
    assert answer.returncode == 0, answer.stderr
    made = box.builds / f"v2.27.5-sm{first}-sm{last}" / "lib" / "libnccl.so.2"
    assert answer.stdout == f"      env:\n        LD_PRELOAD: {made}\n"
    assert "says that it is NCCL 2.27.5" in answer.stderr
    assert library.version_of(made) == (2, 27, 5)
    assert contents.read(made)[:2] == ((first, last), (last,))
    assert left(box) == [f"v2.27.5-sm{first}-sm{last}", f"v2.27.5-sm{first}-sm{last}.log"]
    assert not made.is_symlink()


def test_the_plan_comes_before_anything_runs_and_the_block_last(box: Box) -> None:
    answer = box.run(*WORDS, "--archs", "9.0", CUDA_HOME=str(box.toolkit()))
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.index("NVCC_GENCODE") < answer.stderr.index("compiling for sm90")
    assert "built " in answer.stderr
    made = box.builds / "v2.27.5-sm90"
    about = json.loads((made / "build.json").read_text())
    assert (about["version"], about["archs"], about["road"]) == ("2.27.5", ["sm90"], "native")
    assert stat.S_IMODE((made / "lib" / "libnccl.so.2").stat().st_mode) == 0o755
    assert "$ make -C" in (box.builds / "v2.27.5-sm90.log").read_text()
    tree = {path.name for path in TREE.rglob("*")}
    assert tree == {"Makefile", "README.md", "init.cu", "makefiles", "src", "version.mk"}  # nothing was built in there


def test_json_is_one_document_with_plan_and_result(box: Box) -> None:
    answer = box.run(*WORDS, "--archs", "9.0", "--json", CUDA_HOME=str(box.toolkit()))
    document = json.loads(answer.stdout)
    made = str(box.builds / "v2.27.5-sm90" / "lib" / "libnccl.so.2")
    assert document["result"] == {"path": made, "version": "2.27.5", "already": False, "env": {"LD_PRELOAD": made}}
    assert document["plan"]["output"] == made
    listed = json.loads(box.run("list", "--json").stdout)["builds"]
    assert [(build["path"], build["version"], build["archs"]) for build in listed] == [(made, "2.27.5", ["sm90"])]


def test_what_is_there_is_not_built_again_unless_forced(box: Box) -> None:
    home = str(box.toolkit())
    words = (*WORDS, "--archs", "9.0")
    assert box.run(*words, CUDA_HOME=home).returncode == 0
    made = box.builds / "v2.27.5-sm90" / "lib" / "libnccl.so.2"
    first = made.stat().st_ino
    again = box.run(*words, CUDA_HOME=home)
    assert again.returncode == 0
    assert "it is there already; --force builds it again" in again.stderr
    assert "LD_PRELOAD" in again.stdout
    assert made.stat().st_ino == first
    assert box.run(*words, "--force", CUDA_HOME=home).returncode == 0
    assert made.stat().st_ino != first  # replaced, not written over: a rank may have it mapped
    made.write_text("broken")
    assert box.run(*words, CUDA_HOME=home).returncode == 0
    assert library.version_of(made) == (2, 27, 5)


def broken(box: Box, change: Callable[[Path], object]) -> tuple[subprocess.CompletedProcess[str], Box]:
    tree = box.project.parent / "tree"
    shutil.copytree(TREE, tree)
    change(tree)
    words = ("build", "--native", "--source", str(tree), "--archs", "9.0")
    return box.run(*words, CUDA_HOME=str(box.toolkit())), box


def test_a_build_that_fails_shows_the_end_of_its_log_and_leaves_the_log_alone(box: Box) -> None:
    answer, box = broken(box, lambda tree: (tree / "src" / "init.cu").write_text("#error no such luck\n"))
    assert answer.returncode == 1
    assert "no such luck" in answer.stderr
    assert f"the whole log is {box.builds}/v2.27.5-sm90.log" in answer.stderr
    assert "fix: " in answer.stderr
    assert "Traceback" not in answer.stderr
    assert left(box) == ["v2.27.5-sm90.log"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ('extern "C" int ncclGetVersion(int *v) { *v = 22809; return 0; }', "it says that it is 2.28.9"),
        ('extern "C" int other() { return 0; }', "it has no ncclGetVersion"),
        ('extern "C" int missing(); extern "C" int ncclGetVersion(int *v) { return missing(); }', "undefined symbol"),
    ],
)
def test_a_result_that_is_not_what_was_planned_never_reaches_the_output(box: Box, source: str, why: str) -> None:
    answer, box = broken(box, lambda tree: (tree / "src" / "init.cu").write_text(source))
    assert answer.returncode == 1
    assert why in answer.stderr
    assert left(box) == ["v2.27.5-sm90.log"]


def test_a_make_that_makes_nothing_is_seen(box: Box) -> None:
    answer, box = broken(box, lambda tree: (tree / "Makefile").write_text("src.build: ;\n"))
    assert answer.returncode == 1
    assert "make made no lib/libnccl.so.2" in answer.stderr


def test_leftovers_of_a_killed_build_are_cleared_and_a_full_disk_is_said_first(box: Box) -> None:
    home = str(box.toolkit())
    stale = box.builds / ".v2.27.5-sm90.part" / "ready"
    stale.mkdir(parents=True)
    assert box.run(*WORDS, "--archs", "9.0", CUDA_HOME=home).returncode == 0
    assert not stale.exists()


def test_too_little_space_is_refused_with_both_figures(
    box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flodl_ncclbuild import main

    monkeypatch.chdir(box.project)
    monkeypatch.setenv("PATH", str(box.bin))
    monkeypatch.setenv("RECORD", str(box.record))
    monkeypatch.setenv("CUDA_HOME", str(box.toolkit()))
    usage = shutil.disk_usage(box.project)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=10**9))
    assert main.main([*WORDS, "--archs", "9.0"]) == 1
    assert "1.0 GB are free, and it takes about 1.3" in capsys.readouterr().err
    assert left(box) == ["v2.27.5-sm90.log"]


def test_what_an_outer_make_says_to_its_children_does_not_reach_ours(box: Box) -> None:
    loud = {"MAKEFLAGS": "n", "NVCC": "/nowhere/nvcc", "NVCC_GENCODE": "x", "BUILDDIR": "/nowhere"}
    answer = box.run(*WORDS, "--archs", "9.0", CUDA_HOME=str(box.toolkit()), **loud)
    assert answer.returncode == 0, answer.stderr


def test_a_fetch_that_fails_is_transient_and_names_the_offline_way(box: Box) -> None:
    box.stand_in("git", "sys.stderr.write('fatal: unable to access: Could not resolve host\\n'); sys.exit(128)")
    words = ("build", "--native", "--tag", "v2.27.5", "--archs", "9.0", "--json")
    answer = box.run(*words, CUDA_HOME=str(box.toolkit()))
    assert answer.returncode == 1
    error = json.loads(answer.stdout)["error"]
    assert (error["family"], error["code"]) == ("transient", "no-source")
    assert "--source DIR" in error["fix"]
    assert "Could not resolve host" in answer.stderr
    work = box.builds / ".v2.27.5-sm90.part"
    assert box.recorded("git")[0][:6] == [
        "clone",
        "--depth",
        "1",
        "--branch",
        "v2.27.5-1",
        "https://github.com/NVIDIA/nccl.git",
    ]
    assert not work.exists()


def test_a_tree_that_is_fetched_is_built(box: Box) -> None:
    """The stand-in for git copies the stand-in tree to where the clone goes."""
    box.stand_in("git", f"import shutil; shutil.copytree({str(TREE)!r}, words[-1])")
    answer = box.run("build", "--native", "--tag", "v2.27.5", "--archs", "9.0", CUDA_HOME=str(box.toolkit()))
    assert answer.returncode == 0, answer.stderr
    assert left(box) == ["v2.27.5-sm90", "v2.27.5-sm90.log"]


def test_the_same_library_is_built_once_at_a_time(box: Box) -> None:
    import fcntl

    box.builds.mkdir(parents=True)
    with (box.builds / "v2.27.5-sm90.log").open("ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        answer = box.run(*WORDS, "--archs", "9.0", CUDA_HOME=str(box.toolkit()))
    assert answer.returncode == 1
    assert "another build of it is running" in answer.stderr


def test_a_folder_that_may_not_be_written_is_one_line(box: Box) -> None:
    (box.project / "libtorch").write_text("in the way")
    answer = box.run(*WORDS, "--archs", "9.0", CUDA_HOME=str(box.toolkit()))
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert answer.stderr.splitlines()[-1].startswith("flodl-ncclbuild: cannot go on:")

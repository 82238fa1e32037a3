"""What of a folder travels."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from publish_worlds import git, write

from flodl_publish.selection import select
from flodl_wire.faults import Refused


def repository(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    return folder


def test_git_decides_with_nested_ignores_and_negations(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    write(
        root,
        {"a.py": "", "b.log": "", "keep.log": "", "sub/c.py": "", "sub/d.tmp": "", "ckpt/big.bin": "", "t.log": ""},
    )
    write(root, {".gitignore": "*.log\n!keep.log\nckpt/\n", "sub/.gitignore": "*.tmp\n"})
    git(root, "add", "-f", "t.log")
    tree = select(root)
    assert tree.by == "git"
    assert set(tree.files) == {"a.py", "keep.log", "sub/c.py", ".gitignore", "sub/.gitignore", "t.log"}
    assert {each.path for each in tree.left_out} == {"b.log", "sub/d.tmp", "ckpt/"}
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    assert set(tree.files) == set(filter(None, listed))


def test_a_folder_of_a_repository_is_its_part_of_the_answer(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    write(root, {"a.py": "", "sub/c.py": "", "sub/x.log": "", ".gitignore": "*.log"})
    assert set(select(root / "sub").files) == {"c.py"}


def test_a_folder_that_an_outer_repository_ignores_is_walked(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    write(root, {".gitignore": "work/\n", "work/a.py": ""})
    tree = select(root / "work")
    assert (tree.by, set(tree.files)) == ("walk", {"a.py"})


def test_what_was_deleted_but_not_committed_does_not_travel(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    write(root, {"a.py": "", "b.py": ""})
    git(root, "add", ".")
    (root / "b.py").unlink()
    assert set(select(root).files) == {"a.py"}


def test_submodules_travel_when_checked_out_and_are_named_when_not(tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner")
    write(inner, {"lib.py": "", "x.log": "", ".gitignore": "*.log"})
    git(inner, "add", "lib.py", ".gitignore")
    git(inner, "commit", "-qm", "x")
    root = repository(tmp_path / "r")
    git(root, "submodule", "--quiet", "add", str(inner), "dep")
    write(root, {"dep/y.log": ""})
    tree = select(root)
    assert {"dep/lib.py", "dep/.gitignore", ".gitmodules"} == set(tree.files)
    assert any("dep is a repository of its own" in each for each in tree.warnings)
    git(root, "submodule", "--quiet", "deinit", "-f", "dep")
    tree = select(root)
    assert "dep/lib.py" not in tree.files
    assert any("submodule dep is not checked out" in each for each in tree.warnings)


def test_a_hooks_environment_does_not_turn_git_to_another_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(tmp_path / "r")
    write(root, {"a.py": ""})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", "x")
    assert set(select(root).files) == {"a.py"}


def test_without_git_builds_and_environments_stay_behind_by_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.py": "",
            "target/x": "",
            ".venv/y": "",
            "sub/__pycache__/z": "",
            ".fdl/lab/keys/k": "",
            "libtorch/l": "",
            "env/pyvenv.cfg": "",
        },
    )
    write(tmp_path, {"sub/libtorch/kept": ""})
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    tree = select(tmp_path)
    assert (tree.by, set(tree.files), tree.dirs) == ("walk", {"a.py", "sub/libtorch/kept"}, ["empty/inner"])
    assert {each.path for each in tree.left_out} == {
        "target/",
        ".venv/",
        "sub/__pycache__/",
        ".fdl/",
        "libtorch/",
        "env/",
    }


def test_what_is_no_file_is_named_and_stays(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": ""})
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
    tree = select(tmp_path)
    assert set(tree.files) == {"a.py"}
    assert {(each.path, each.why) for each in tree.left_out} == {("pipe", "a FIFO"), ("door", "a socket")}


def test_links_travel_as_links_unless_they_leave(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "", "sub/b.py": ""})
    for name, target in (
        ("in", "sub"),
        ("dangling", "nothing"),
        ("abs", "/etc"),
        ("out", "../x"),
        ("sub/up", "../a.py"),
    ):
        (tmp_path / name).symlink_to(target)
    tree = select(tmp_path)
    assert tree.links == {"in": "sub", "dangling": "nothing", "sub/up": "../a.py"}
    assert {each.path for each in tree.left_out} == {"abs", "out"}


def test_a_source_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no such folder"):
        select(tmp_path / "no")

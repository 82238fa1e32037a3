"""An unchanged publish is told at a glance, and whatever has changed is seen all the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from publish_worlds import World, content, git, whole, write

from flodl_publish import main, selection

PROJECT = {"train.py": "import model\n", "model.py": "x = 1\n", "sub/a.txt": "a", "sub/b.txt": "b"}


@pytest.fixture(params=["git", "no git"])
def made(world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    """Published until it stands."""
    monkeypatch.setenv("HOME", str(world.root / "home"))
    write(world.source, PROJECT)
    (world.source / "link").symlink_to("sub")
    if request.param == "git":
        git(world.source, "init", "-q")
        write(world.source, {".gitignore": "*.log\n", "seen.log": ""})
        git(world.source, "add", ".")
        write(world.source, {"untracked.py": "u = 1\n"})
    for _ in range(3):
        publish(world)
    return world


def publish(world: World, *words: str) -> int:
    return main.main(["publish", f"file://{world.source}", "--bin", "train.py", "--to", str(world.served), *words])


@pytest.fixture
def glances(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each publish from here on took the long way."""
    ways: list[bool] = []
    select = selection.select

    def long_way(root: Path) -> object:
        ways.append(True)
        return select(root)

    monkeypatch.setattr(selection, "select", long_way)
    return ways


def test_an_unchanged_tree_is_told_at_a_glance_and_is_a_run_of_its_own(made: World, glances: list[bool]) -> None:
    run = made.manifest.read_text()
    assert publish(made, "--", "--lr", "1") == 0
    assert glances == [] and made.manifest.read_text() != run
    assert whole(made.tree) and content(made.tree) == shipped(made)
    assert made.fetch()["args"] == ["--lr", "1"]
    report = made.publish("--bin", "train.py")
    write(made.source, {"sub/a.txt": "c"})
    anew = made.publish("--bin", "train.py")
    told = ("files", "links", "bytes", "left_out", "largest", "by", "warnings")
    assert {key: report[key] for key in told} == {key: anew[key] for key in told}, "the same size"


def shipped(made: World) -> dict[str, tuple[str, ...]]:
    there = content(made.source).items()
    return {path: seen for path, seen in there if not path.endswith(".log") and not path.startswith(".git/")}


def same_size_and_mtime(path: Path) -> None:
    before = path.stat()
    path.write_text(path.read_text().replace("1", "2"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[World], object]] = {
    "a file": lambda made: write(made.source, {"model.py": "x = 22\n"}),
    "a file, its size and time kept": lambda made: same_size_and_mtime(made.source / "model.py"),
    "its mode": lambda made: (made.source / "model.py").chmod(0o755),
    "its mode, not for git": lambda made: (made.source / "model.py").chmod(0o600),
    "a new file": lambda made: write(made.source, {"sub/new.py": ""}),
    "a file less": lambda made: (made.source / "sub/a.txt").unlink(),
    "another name": lambda made: (made.source / "sub/a.txt").rename(made.source / "sub/A.txt"),
    "a link": lambda made: ((made.source / "link").unlink(), (made.source / "link").symlink_to("sub/a.txt")),
    "a served file": lambda made: write(made.tree, {"model.py": "x = 9\n"}),
    "a served file, its size and time kept": lambda made: same_size_and_mtime(made.tree / "model.py"),
    "a served file less": lambda made: (made.tree / "sub/a.txt").unlink(),
    "a served file more": lambda made: write(made.tree, {"sub/more": ""}),
    "the sidecar": lambda made: write(made.tree, {".fdl-run.sha256": ""}),
    "what is remembered": lambda made: write(made.served, {".publish/standing.json": "[]"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_has_changed_is_seen(made: World, glances: list[bool], what: str) -> None:
    CHANGES[what](made)
    assert publish(made) == 0
    assert glances == [True]
    assert whole(made.tree) and content(made.tree) == shipped(made)


def test_an_untracked_file_and_git_s_own_answer_are_looked_at(world: World, glances: list[bool]) -> None:
    write(world.source, {**PROJECT, ".gitignore": "*.log\n", "a.log": ""})
    git(world.source, "init", "-q")
    git(world.source, "add", ".")
    write(world.source, {"untracked.py": "u = 1\n"})
    for _ in range(3):
        publish(world)
    glances.clear()
    publish(world)
    assert glances == []
    for change, path in (
        (lambda: same_size_and_mtime(world.source / "untracked.py"), "untracked.py"),
        (lambda: git(world.source, "add", "-f", "a.log"), "a.log"),
        (lambda: write(world.source, {".gitignore": ""}), ".gitignore"),
        (lambda: write(world.source, {".git/info/exclude": "untracked.py\n"}), ""),
    ):
        change()
        publish(world)
        assert glances == [True], path
        glances.clear()
        assert not path or (world.tree / path).read_bytes() == (world.source / path).read_bytes()
    assert not (world.tree / "untracked.py").exists()


def test_a_deletion_that_is_not_committed_is_no_reason_for_the_long_way(world: World, glances: list[bool]) -> None:
    write(world.source, PROJECT)
    git(world.source, "init", "-q")
    git(world.source, "add", ".")
    (world.source / "sub/a.txt").unlink()
    for _ in range(4):
        publish(world)
    assert len(glances) == 2 and not (world.tree / "sub/a.txt").exists()


@pytest.mark.parametrize("odd", ["assume-unchanged", "skip-worktree", "a repository inside"])
def test_what_git_does_not_look_at_is_never_taken_for_unchanged(world: World, odd: str, glances: list[bool]) -> None:
    write(world.source, PROJECT)
    git(world.source, "init", "-q")
    git(world.source, "add", ".")
    if odd == "a repository inside":
        write(world.source, {"inner/x.py": "1\n"})
        git(world.source / "inner", "init", "-q")
        git(world.source / "inner", "add", ".")
    else:
        git(world.source, "update-index", f"--{odd}", "model.py")
    for _ in range(4):
        publish(world)
    assert len(glances) == (4 if odd == "a repository inside" else 2)
    write(world.source, {"inner/x.py" if odd == "a repository inside" else "model.py": "x = 2\n"})
    publish(world)
    for path in ("model.py", *(["inner/x.py"] if odd == "a repository inside" else [])):
        assert (world.tree / path).read_text() == (world.source / path).read_text()


def test_another_program_or_recipe_is_asked_for_in_full(made: World, glances: list[bool]) -> None:
    write(made.source, {"other.py": ""})
    for _ in range(3):
        publish(made)
    glances.clear()
    assert publish(made, "--bin", "other.py") == 0 and publish(made, "--bin", "train.py", "--no-build") == 0
    assert glances[:1] == [True]
    assert publish(made, "--dry-run") == 0 and glances[-1]


def test_a_flaw_that_only_the_gate_sees_is_seen_again(world: World, glances: list[bool]) -> None:
    """A second interpreter may judge otherwise; the gate looks each time."""
    write(world.source, PROJECT)
    for _ in range(3):
        publish(world)
    write(world.source, {"model.py": "x = \n"})
    assert publish(world) == 1 and publish(world) == 1 and publish(world) == 1
    assert not world.manifest.exists()

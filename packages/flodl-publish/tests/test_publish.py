"""`flodl-publish publish`, typed as an operator does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from publish_worlds import World, content, git, whole, write

from flodl_wire import environ
from flodl_wire.served_runs import newer_run, runs_of

PROJECT = {"train.py": "import model\n", "model.py": "x = 1\n", "notes.txt": "hello\n"}


@pytest.fixture
def made(world: World) -> World:
    write(world.source, PROJECT)
    return world


def test_a_run_is_published_with_all_that_a_worker_needs(made: World) -> None:
    report = made.publish("--bin", "train.py", "--", "--lr", "0.1", "a b", "")
    manifest = yaml.safe_load(made.manifest.read_bytes())
    assert whole(made.tree)
    assert content(made.tree) == content(made.source)
    assert (manifest["args"], manifest["built"], manifest["bin"]) == (["--lr", "0.1", "a b", ""], True, "train.py")
    assert manifest["digest"]["files"] == report["files"] == 3
    assert report["run"] == manifest["run"]
    assert report["worker_specs"]["rrsync"].endswith(":/tree")
    assert report["worker_specs"]["plain"].endswith(f":{made.tree}")
    assert report["largest"][0] == {"path": "train.py", "bytes": 13}


def test_every_publish_is_a_run_of_its_own_and_an_unchanged_one_copies_nothing(made: World) -> None:
    for each in made.source.iterdir():
        os.utime(each, ns=(10**18, 10**18))
    first = made.publish("--bin", "train.py")
    made.publish("--bin", "train.py")  # by now nothing counts as just changed
    again = made.publish("--bin", "train.py")
    assert (again["copied"], again["removed"], again["digest"]) == (0, 0, first["digest"])
    assert again["run"] != first["run"]


def test_a_change_costs_the_changed_file(made: World) -> None:
    made.publish("--bin", "train.py")
    made.publish("--bin", "train.py")
    write(made.source, {"model.py": "x = 2\n"})
    (made.source / "notes.txt").unlink()
    report = made.publish("--bin", "train.py")
    assert (report["copied"], report["removed"]) == (1, 1)
    assert whole(made.tree)


def test_people_see_both_spellings_counts_and_what_stayed_behind(made: World) -> None:
    git(made.source, "init", "-q")
    write(
        made.source, {".gitignore": "secret.py\nckpt/\n", "secret.py": "", "ckpt/x": "", "train.py": "import secret\n"}
    )
    done = made.run("publish", f"file://{made.source}", "--bin", "train.py", "--to", made.served)
    assert done.returncode == 0, done.stderr
    assert "published 4 files" in done.stdout
    assert "plain key" in done.stdout and f"rrsync -ro {made.served}" in done.stdout
    assert "secret.py does not travel, and train.py imports it: git ignores it by .gitignore:1:secret.py" in done.stdout
    assert "ckpt/: git ignores it" in done.stdout


def test_a_dry_run_shows_what_would_go_and_touches_nothing(made: World) -> None:
    made.publish("--bin", "train.py")
    before = made.manifest.read_bytes()
    write(made.source, {"more.py": ""})
    report = made.publish("--bin", "train.py", "--dry-run")
    assert (report["files"], report["dry_run"], report["run"]) == (4, True, "")
    assert made.manifest.read_bytes() == before
    assert not (made.tree / "more.py").exists()


def test_the_standing_block_publishes_by_itself(made: World) -> None:
    block = {"source": f"file://{made.source}", "bin": "train.py", "to": "served", "args": ["--epochs", "1"]}
    document = {"manifest": str(made.root / "fdl.yml"), "publish": block, "cluster": {"controller": {"host": "desk"}}}
    handed = {environ.CONFIG_JSON: json.dumps(document).encode().hex()}
    report = made.ask("publish", env=handed)
    assert (report["args"], report["host"], report["served"]) == (["--epochs", "1"], "desk", str(made.served))
    assert made.ask("publish", "--", env=handed)["args"] == []


def test_a_pinned_checkout_is_published_with_its_submodule(made: World) -> None:
    git(made.source, "init", "-q")
    git(made.source, "add", ".")
    git(made.source, "commit", "-qm", "1")
    git(made.source, "tag", "v1")
    write(made.source, {"model.py": "x = 2\n", "untracked": ""})
    git(made.source, "commit", "-qam", "2")
    for ref, text in (("v1", "x = 1\n"), (git(made.source, "rev-parse", "HEAD").strip(), "x = 2\n")):
        spec = f"git+file://{made.source}#{ref}"
        report = made.ask("publish", spec, "--bin", "train.py", "--to", made.served)
        assert report["origin"] == spec
        assert (made.tree / "model.py").read_text() == text
        assert not (made.tree / ".git").exists() and not (made.tree / "untracked").exists()
        assert whole(made.tree)


def test_each_gate_builds_in_a_copy_of_its_own(made: World) -> None:
    for name in ("cpu", "cu128"):
        write(made.root / "home/.flodl/libtorch/precompiled" / name, {"lib/libtorch.so": ""})
    recipe = (
        'mkdir -p out; echo "$FDL_GPU_FEATURE" > out/feature; echo x >> out/times; cp out/feature prog; chmod +x prog'
    )
    words = ("--bin", "prog", "--build", recipe, "--gate", "precompiled/cu128")
    report = made.publish(*words)
    assert [gate["variant"] for gate in report["gates"]] == ["", "precompiled/cu128"]
    assert not (made.tree / "out").exists()
    gates = made.served / "gate"
    assert (gates / "precompiled-cu128/tree/out/feature").read_text() == "cuda\n"
    assert (gates / "environment/tree/out/feature").read_text() == "\n"
    made.publish(*words)
    assert (gates / "precompiled-cu128/tree/out/times").read_text() == "x\nx\n"  # its build is kept for the next


@pytest.mark.parametrize("gate", [(), ("--gate", "precompiled/cu128")])
def test_a_gate_that_fails_publishes_nothing_and_says_so(made: World, gate: tuple[str, ...]) -> None:
    write(made.root / "home/.flodl/libtorch/precompiled/cu128", {"lib/libtorch.so": ""})
    made.publish("--bin", "train.py")
    recipe = '[ -z "$FDL_GPU_FEATURE" ]' if gate else "echo broken; false"
    error = made.publish("--bin", "train.py", "--build", recipe, *gate)["error"]
    assert (error["family"], error["code"]) == ("transient", "build-failed")
    assert "nothing is published now" in error["why"]
    assert not made.manifest.exists()
    assert made.publish("--bin", "train.py")["run"]


def test_no_build_is_recorded(made: World) -> None:
    report = made.publish("--bin", "train.py", "--no-build", "--build", "false")
    assert report["built"] is False
    assert yaml.safe_load(made.manifest.read_bytes())["built"] is False
    assert "cannot use --gate with --no-build" in made.publish_error("--bin", "train.py", "--no-build", "--gate", "x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bin", "no.py"), "there is no such file in the source; did you mean train.py?"),
        (("--bin", "train.py", "--cwd", "nowhere"), "no such folder in the source"),
        (("--bin", "train.py", "--cwd", "../x"), "leads out"),
        (("--bin", "train.py", "--gate", "precompiled/none"), "no such variant"),
        (("--bin", "train.py", "--to", "source/served"), "publish itself"),
        ((), "publish.bin: it is missing"),
        (("--bin", "train.py", "--build", "true", "--bin", "target/x"), "did not make it"),
        (("--bin", "."), "it is a folder"),
        (("--bin", "train.py", "--build", "exit 3"), "exit 3, and it said nothing"),
        (("--bin", "train.py", "--to", "/proc/x"), "/proc/x: No such file or directory\nfix: choose another folder"),
    ],
)
def test_bad_input_is_refused_in_words(made: World, words: tuple[str, ...], said: str) -> None:
    assert said in made.publish_error(*words)


def test_a_source_that_is_a_file_is_told_so(made: World) -> None:
    error = made.ask("publish", f"file://{made.source}/train.py", "--bin", "train.py", "--to", made.served)["error"]
    assert error["why"] == "it is a file, and a source is a folder"


@pytest.mark.parametrize("words", [("--bin", "train.py", "--cwd", "nowhere"), ("--bin", "train.py", "--gate", "no/ne")])
def test_what_is_refused_before_anything_is_touched_leaves_the_run_that_stands(
    made: World, words: tuple[str, ...]
) -> None:
    made.publish("--bin", "train.py")
    before = made.manifest.read_bytes()
    assert "error" in made.publish(*words)
    assert made.manifest.read_bytes() == before


def test_a_second_publish_is_told_who_holds_the_folder_or_waits(made: World) -> None:
    fifo = made.root / "go"
    os.mkfifo(fifo)
    first = made.start(
        "publish", f"file://{made.source}", "--bin", "train.py", "--to", made.served, "--build", f"cat {fifo}"
    )
    with fifo.open("w"):  # opens when the gate has begun to read
        error = made.publish("--bin", "train.py")["error"]
        assert error["code"] == "busy"
        assert f"process {first.pid}" in error["why"]
        waiting = made.start("publish", f"file://{made.source}", "--bin", "train.py", "--to", made.served, "--wait")
        assert waiting.stderr is not None
        assert f"waiting for a publish of process {first.pid}" in waiting.stderr.readline()
    assert first.communicate(timeout=30) and first.returncode == 0
    assert waiting.communicate(timeout=30) and waiting.returncode == 0
    assert whole(made.tree)


def test_a_dependency_that_git_ignores_is_refused_by_the_rule(made: World) -> None:
    git(made.source, "init", "-q")
    write(made.source, {".gitignore": "lib/\n", "lib/pyproject.toml": "", "requirements.txt": "-e lib/\n./lib\n"})
    assert "lib, which does not travel: git ignores it by .gitignore:1:lib/" in made.publish_error("--bin", "train.py")


def test_names_that_break_naive_copiers_arrive(made: World) -> None:
    write(made.source, {"a b/ü é.txt": "1", "line\nend": "2", "-x": "3", "back\\slash": "4", "pkg/UPPER": "5"})
    Path(os.fsdecode(os.fsencode(made.source) + b"/\xff\xfe")).write_text("raw")
    (made.source / "train.py").chmod(0o755)
    (made.source / "to").symlink_to("a b")
    (made.source / "dangling").symlink_to("nowhere")
    (made.source / "out").symlink_to("/etc")
    os.mkfifo(made.source / "pipe")
    made.publish("--bin", "train.py")
    expected = content_without(made.source, "out", "pipe")
    assert content(made.tree) == expected
    assert whole(made.tree)
    (made.source / "pkg/UPPER").rename(made.source / "pkg/upper")
    made.publish("--bin", "train.py")
    assert content(made.tree) == content_without(made.source, "out", "pipe")


def content_without(root: Path, *names: str) -> dict[str, tuple[str, ...]]:
    for name in names:
        (root / name).rename(root.parent / f"kept-{name}")
    found = content(root)
    for name in names:
        (root.parent / f"kept-{name}").rename(root / name)
    return found


def test_it_works_without_a_locale(made: World) -> None:
    write(made.source, {"gör an/ü.txt": "1"})
    report = made.publish("--bin", "train.py", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert "error" not in report, report
    assert whole(made.tree)


def test_a_typo_in_bin_leaves_the_run_published_last_alone(made: World) -> None:
    run = made.publish("--bin", "train.py")["run"]
    assert "did you mean train.py?" in made.publish_error("--bin", "trian.py")
    assert made.fetch()["run"] == run


def test_the_runs_that_a_folder_has_held_are_written_down_for_its_window(world: World) -> None:
    write(world.source, {"train.py": ""})
    runs = [world.publish("--bin", "train.py")["run"] for _ in range(3)]
    assert world.publish("--bin", "train.py", "--build", "false")["error"]
    assert runs_of(world.served) == runs
    assert newer_run(runs, runs[0]) == newer_run(runs, runs[1]) == runs[2] and newer_run(runs, runs[2]) == ""

"""`flodl-publish fetch` and `build` on a worker. (rsync over a real ssh: integration/test_publish.py.)"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from publish_worlds import World, content, git, whole, write

from flodl_publish import pulling, source
from flodl_publish.index import TICK_NS, now_ns
from flodl_publish.pulling import Login

PROJECT = {"train.py": "import model\n", "model.py": "x = 1\n", "pkg/a.py": "", "pkg/b.py": ""}


@pytest.fixture
def made(world: World) -> World:
    write(world.source, PROJECT)
    (world.source / "pkg/a.py").chmod(0o755)
    (world.source / "link").symlink_to("pkg")
    world.publish("--bin", "train.py", "--", "--lr", "1")
    return world


def copy(world: World) -> Path:
    return world.worker / "tree"


def test_a_worker_gets_the_tree_as_it_is_and_learns_what_to_run(made: World) -> None:
    answer = made.fetch()
    assert content(copy(made)) == content(made.tree) == content(made.source)
    assert whole(copy(made))
    assert (answer["bin"], answer["args"], answer["published"], answer["built"]) == (
        "train.py",
        ["--lr", "1"],
        True,
        True,
    )
    assert answer["tree"] == str(copy(made))
    assert answer["files"] == 4
    assert answer["age_secs"] < 60


def test_what_was_deleted_goes_and_builds_stay(made: World) -> None:
    made.fetch()
    write(copy(made), {"pkg/b.so": "built", "target/x": "built", ".venv/bin/y": "built"})
    (made.source / "pkg/b.py").rename(made.source / "pkg/c.py")
    made.publish("--bin", "train.py")
    assert made.fetch()["removed"] == 1
    built = {"pkg/b.so", "target/x", ".venv/bin/y"}
    assert set(content(copy(made))) == set(content(made.source)) | built


@pytest.mark.parametrize("between", ["a fetch that failed", "a reboot"])
def test_builds_stay_and_what_was_deleted_goes_whatever_came_between(
    made: World, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.fetch()
    write(copy(made), {"pkg/b.so": "built", "mine.o": "built"})
    built = (copy(made) / "mine.o").stat().st_ctime_ns
    while now_ns() < built + 2 * TICK_NS:
        pass  # what is as young as the fetch behind it may be that fetch's own
    (made.source / "pkg/b.py").unlink()
    if between == "a fetch that failed":
        kept = made.manifest.read_bytes()
        made.manifest.unlink()
        assert made.fetch()["error"]["code"] == "no-manifest"
        made.manifest.write_bytes(kept)
    else:
        index = made.worker / ".publish/tree.index"
        index.write_bytes(re.sub(b'"boot": "[^"]*"', b'"boot": "another"', index.read_bytes()))
    made.publish("--bin", "train.py")
    made.fetch()
    assert set(content(copy(made))) == {*content(made.source), "pkg/b.so", "mine.o"}


def test_no_manifest_is_transient_and_what_was_there_is_no_run_any_more(made: World) -> None:
    made.fetch()
    made.manifest.unlink()
    error = made.fetch()["error"]
    assert (error["family"], error["code"]) == ("transient", "no-manifest")
    assert made.ask("build", made.worker)["error"]["family"] == "transient"


@pytest.mark.parametrize("harm", ["changed", "missing", "sidecar", "edited", "newer"])
def test_a_tree_that_is_not_what_was_published_is_refused_by_name_for_now(made: World, harm: str) -> None:
    if harm not in ("changed", "missing"):  # what a worker has, proven, it does not ask for again
        made.fetch()
    if harm == "changed":
        (made.tree / "model.py").write_text("x = 2\n")
    elif harm == "missing":
        (made.tree / "model.py").unlink()
    elif harm == "sidecar":
        (made.tree / ".fdl-run.sha256").write_text("")
    elif harm == "edited":
        made.manifest.write_text(made.manifest.read_text().replace("--lr", "--rl"))
    else:
        made.manifest.write_text(made.manifest.read_text() + "future: 1\n")
    error = made.fetch()["error"]
    assert error["family"] == "transient"
    said = {"changed": "model.py", "missing": "model.py", "sidecar": ".fdl-run.sha256", "edited": "edited by hand"}
    assert (
        said.get(harm, {"newer": "newer flodl-publish", "link": "link"}.get(harm, "")) in error["what"] + error["why"]
    )
    assert not (copy(made) / ".fdl-run.yml").exists()
    made.publish("--bin", "train.py")  # the controller mends its tree, the worker its copy
    assert made.fetch()["published"] is True
    assert content(copy(made)) == content(made.source)


@pytest.mark.parametrize("road", ["folder", "rsync"])
def test_a_copy_that_was_changed_here_is_mended(made: World, road: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(made, monkeypatch)
    spec = f"rsync://h:{made.tree}" if road == "rsync" else f"file://{made.tree}"
    made.ask("fetch", spec, "--to", made.worker)
    model, before = copy(made) / "model.py", content(copy(made))
    seen = model.stat()
    model.write_text("x = 2\n")
    os.utime(model, ns=(seen.st_atime_ns, seen.st_mtime_ns))  # the same size, the same time
    (copy(made) / "pkg/a.py").chmod(0o644)
    (copy(made) / "train.py").unlink()
    (copy(made) / "link").unlink()
    (copy(made) / "link").symlink_to("model.py")
    made.ask("fetch", spec, "--to", made.worker)
    assert content(copy(made)) == before
    (copy(made) / "pkg").rename(made.root / "elsewhere")
    (copy(made) / "pkg").symlink_to(made.root / "elsewhere")
    made.ask("fetch", spec, "--to", made.worker)
    assert content(copy(made)) == before
    assert not (copy(made) / "pkg").is_symlink()


@pytest.mark.parametrize("road", ["folder", "rsync"])
def test_a_right_to_run_travels_without_a_change_of_content(
    made: World, road: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(made, monkeypatch)
    spec = f"rsync://h:{made.tree}" if road == "rsync" else f"file://{made.tree}"
    made.ask("fetch", spec, "--to", made.worker)
    (made.source / "pkg/a.py").chmod(0o644)
    (made.source / "pkg/b.py").chmod(0o755)
    made.publish("--bin", "train.py")
    made.ask("fetch", spec, "--to", made.worker)
    assert content(copy(made)) == content(made.source)


def test_names_that_would_mean_something_to_rsync_come_as_they_are(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(made, monkeypatch)
    names = ["#a", ";b", " c ", "-d", "e\nf", "ü", "[g]*", "h:i", "j\\k", os.fsdecode(b"\xff"), "l/#m", "n/ o/p", "+ q"]
    write(made.source, dict.fromkeys(names, "1"))
    made.publish("--bin", "train.py")
    for text in ("1", "2"):  # the first time, and over what is there
        write(made.source, {name: f"{text} in {name!r}" for name in names})
        made.publish("--bin", "train.py")
        made.ask("fetch", f"rsync://h:{made.tree}", "--to", made.worker)
        assert content(copy(made)) == content(made.source)


def test_of_a_served_tree_only_what_is_new_is_asked_for(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(made, monkeypatch)
    asked: list[list[str]] = []
    rsync = pulling.listed
    monkeypatch.setattr(pulling, "listed", lambda *words: (asked.append(words[3]), rsync(*words))[1])
    for _ in range(2):
        made.ask("fetch", f"rsync://h:{made.tree}", "--to", made.worker)
    (made.source / "model.py").write_text("x = 2\n")
    made.publish("--bin", "train.py")
    made.ask("fetch", f"rsync://h:{made.tree}", "--to", made.worker)
    assert asked == [["model.py", "pkg/a.py", "pkg/b.py", "train.py"], ["model.py"]]


def stand_in(made: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For ssh: it runs the other end here."""
    ssh = made.root / "bin/ssh"
    write(made.root, {"bin/ssh": '#!/bin/sh\nwhile [ "$1" != h ]; do shift; done; shift; exec sh -c "$*"\n'})
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    return ssh


def test_the_folder_around_a_run_and_a_place_that_cannot_be_are_refused_with_what_to_name(made: World) -> None:
    error = made.ask("fetch", f"file://{made.served}", "--to", made.worker)["error"]
    assert (error["family"], error["fix"]) == ("refused", f"name file://{made.tree}")
    error = made.ask("fetch", f"file://{made.tree}", "--to", "/proc/x")["error"]
    assert (error["family"], error["why"]) == ("refused", "/proc/x: No such file or directory")
    assert "--to" in error["fix"]


def test_another_source_starts_anew(made: World) -> None:
    made.fetch()
    other = made.root / "other"
    write(other, {"x.py": ""})
    made.ask("publish", f"file://{other}", "--bin", "x.py", "--to", made.root / "served2")
    made.ask("fetch", f"file://{made.root}/served2/tree", "--to", made.worker)
    assert set(content(copy(made))) == {"x.py"}


def test_a_source_that_nobody_published_needs_this_boxs_own_recipe(made: World) -> None:
    spec = f"file://{made.source}"
    assert made.ask("fetch", spec, "--to", made.worker)["error"]["code"] == "no-manifest"
    answer = made.ask("fetch", spec, "--to", made.worker, "--bin", "train.py", "--", "--x")
    assert (answer["published"], answer["bin"], answer["args"]) == (False, "train.py", ["--x"])
    assert content(copy(made)) == content(made.source)


def test_a_manifest_wins_over_this_boxs_recipe(made: World) -> None:
    answer = made.fetch("--bin", "other.py", "--build", "false")
    assert (answer["bin"], answer["build"]) == ("train.py", "")


def test_git_brings_a_pinned_tree_and_leaves_builds(made: World) -> None:
    git(made.source, "init", "-q")
    git(made.source, "add", ".")
    git(made.source, "commit", "-qm", "1")
    git(made.source, "branch", "one")
    git(made.source, "rm", "-q", "pkg/b.py")
    git(made.source, "commit", "-qm", "2")
    git(made.source, "branch", "two")
    for ref in ("one", "two"):
        made.ask("fetch", f"git+file://{made.source}#{ref}", "--to", made.worker, "--bin", "train.py")
        assert (copy(made) / "pkg/b.py").exists() is (ref == "one")
        write(copy(made), {"target/x": "built"})
    error = made.ask("fetch", f"git+file://{made.source}#none", "--to", made.worker, "--bin", "train.py")["error"]
    assert (error["family"], error["code"]) == ("transient", "fetch-failed")


def test_a_bare_commit_that_the_server_refuses_names_the_servers_setting(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = made.root / "bin/git"
    said = "error: Server does not allow request for unadvertised object"
    write(made.root, {"bin/git": f"#!/bin/sh\n[ $1 != fetch ] || {{ echo '{said} abc' >&2; exit 128; }}\n"})
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    error = made.ask("fetch", "git+https://h/x#" + "a" * 40, "--to", made.worker, "--bin", "t.py")["error"]
    assert (error["family"], error["code"]) == ("refused", "bare-commit")
    assert "uploadpack.allowReachableSHA1InWant" in error["fix"]


def test_a_build_proves_the_tree_first_and_says_what_it_made(made: World) -> None:
    recipe = "echo x > prog; chmod +x prog; echo building"
    made.publish("--bin", "prog", "--build", recipe)
    made.fetch()
    answer = made.ask("build", made.worker)
    assert answer["bin"] == str(copy(made) / "prog")
    assert answer["recipe"] == recipe
    (copy(made) / "model.py").write_text("x = 2\n")
    error = made.ask("build", made.worker)["error"]
    assert (error["code"], "model.py" in error["why"]) == ("digest-differs", True)


def test_an_unbuilt_run_and_another_toolchain_are_said(made: World) -> None:
    made.publish("--bin", "train.py", "--no-build")
    assert any("--no-build" in note for note in made.fetch()["notes"])
    done = made.run("build", made.worker)
    assert (done.returncode, "nobody has built this run" in done.stderr) == (0, True)
    fake = copy(made) / ".venv/bin/python"
    write(
        copy(made),
        {".venv/bin/python": f'#!/bin/sh\n[ "$1" = -V ] && {{ echo Python 2.7; exit; }}\nexec {sys.executable} "$@"\n'},
    )
    fake.chmod(0o755)
    assert any("this box Python 2.7" in each for each in made.ask("build", made.worker)["warnings"])


def test_the_rsync_line_says_port_key_and_options_and_quotes_spaces() -> None:
    argv = pulling.rsync_argv(
        source.parse("rsync://op@[fd00::1]:2222:/my tree"), Path("/d"), Login("/k y", ("A=b",)), ["--delete"]
    )
    assert argv[-2:] == ["op@[fd00::1]:/my tree/", "/d/"]
    shell = argv[argv.index("-e") + 1]
    assert shell.startswith("ssh -p 2222 -i '/k y' -o A=b -o ")
    assert "BatchMode=yes" in shell
    assert argv.index("--delete") < argv.index("--")


def test_an_rsync_that_is_not_there_is_permanent(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (made.root / "none").mkdir()
    monkeypatch.setenv("PATH", str(made.root / "none"))
    error = made.ask("fetch", "rsync://h:/tree", "--to", made.worker)["error"]
    assert (error["family"], error["fix"]) == ("refused", "apt install rsync")


@pytest.mark.parametrize("words", [("--bin", "../x"), ("--bin", "x", "--cwd", "../y")])
def test_a_recipe_that_leads_out_is_a_usage_error(made: World, words: tuple[str, ...]) -> None:
    done = made.run("fetch", f"file://{made.source}", "--to", made.worker, *words)
    assert done.returncode == 2


@pytest.mark.parametrize("kind", ["rsync", "file"])
def test_what_is_built_while_there_is_no_run_to_be_had_stays(
    made: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    stand_in(made, monkeypatch)
    words = ("fetch", f"rsync://h:{made.tree}" if kind == "rsync" else f"file://{made.tree}", "--to", made.worker)
    made.ask(*words)
    published = made.manifest.read_bytes()
    made.manifest.unlink()
    assert made.ask(*words)["error"]["code"] == "no-manifest"
    write(copy(made), {"mine.o": "built by hand, between two tries"})
    made.manifest.write_bytes(published)
    assert made.ask(*words)["removed"] == 0
    assert (copy(made) / "mine.o").exists()


def test_an_rsync_transfer_is_swept_proven_and_mended(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = stand_in(made, monkeypatch)
    spec = f"rsync://h:{made.tree}"
    assert made.ask("fetch", spec, "--to", made.worker)["removed"] == 0
    assert content(copy(made)) == content(made.source)
    # as a killed fetch leaves it: half of a run that is no more, and a temporary file of rsync's
    (made.worker / ".publish/unfinished").write_text("since then\n")
    write(copy(made), {"pkg/late.py": "", ".model.py.Ab12cd": "", "target/x": "built"})
    made.ask("fetch", spec, "--to", made.worker)
    assert set(content(copy(made))) == {*content(made.source), "target/x"}
    # a folder became a file, a link a folder
    for name in ("pkg/a.py", "pkg/b.py", "link"):
        (made.source / name).unlink()
    (made.source / "pkg").rmdir()
    write(made.source, {"pkg": "", "link/x": ""})
    made.publish("--bin", "train.py")
    made.ask("fetch", spec, "--to", made.worker)
    assert set(content(copy(made))) == {*content(made.source), "target/x"}
    made.manifest.write_text(made.manifest.read_text().replace("train.py", "other.py"))
    assert made.ask("fetch", spec, "--to", made.worker)["error"]["code"] == "bad-manifest"
    assert not (copy(made) / ".fdl-run.yml").exists()
    made.manifest.unlink()
    assert made.ask("fetch", spec, "--to", made.worker)["error"]["code"] == "no-manifest"
    quiet = ssh.read_text()
    ssh.write_text(quiet.replace("exec", "echo Welcome to h; exec"))
    error = made.ask("fetch", spec, "--to", made.worker)["error"]
    assert (error["family"], error["code"]) == ("transient", "shell-talks") and "ssh h true" in error["fix"]
    ssh.write_text(quiet)
    error = made.ask("fetch", f"rsync://h:{made.root}/nowhere", "--to", made.worker)["error"]
    assert (error["family"], error["code"]) == ("transient", "no-tree")
    answer = made.ask("fetch", f"rsync://h:{made.source}", "--to", made.worker, "--bin", "train.py")
    assert answer["published"] is False
    assert content(copy(made)) == content(made.source)


def test_sha256sum_agrees_on_the_worker(made: World) -> None:
    made.fetch()
    done = subprocess.run(["sha256sum", "-c", ".fdl-run.sha256"], cwd=copy(made), capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("OK")) == (0, 4)

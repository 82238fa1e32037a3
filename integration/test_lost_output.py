"""Stdout on a full disk, or read by nobody any more: work that is done is done, and nothing ends in a traceback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from integration.conftest import Make
from integration.project import BIN, rank_command

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")

VERBS = {
    "fdl": ["", "init", "config", "completion", "join-config", "version", "status", "publish"],
    "flodl-agent": ["", "run", "fanout", "join", "libtorch"],
    "flodl-ncclbuild": ["", "build", "list", "check"],
    "flodl-planes": ["", "hub", "relay"],
    "flodl-probe": ["", "devices", "answer", "schema"],
    "flodl-publish": ["", "publish", "fetch", "build", "show"],
    "flodl-window": ["", "launch", "serve", "status", "start", "why", "runs", "report"],
}
CANNOT = "cannot write the output: No space left on device"
DONE = "its work is done, but its output could not be written: No space left on device"


def lost(words: Sequence[str | Path], folder: Path, *, full: bool) -> tuple[int, str]:
    """Exit code and stderr of a command in `folder` whose stdout goes to a full disk, or to a pipe without a reader."""
    if full:
        out = os.open(FULL, os.O_WRONLY)
    else:
        reader, out = os.pipe()
        os.close(reader)
    try:
        done = subprocess.run(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60,
            check=False, env={**os.environ, "HOME": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}"},
        )  # fmt: skip
    finally:
        os.close(out)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def test_the_table_names_every_executable() -> None:
    assert {path.name for path in BIN.iterdir() if path.name == "fdl" or path.name.startswith("flodl-")} == set(VERBS)


@pytest.mark.parametrize("tool", VERBS)
def test_help_that_nobody_reads_is_no_error_and_help_that_is_lost_is_one_line(tool: str, project: Make) -> None:
    folder = project(train={"run": "python train.py"}).folder
    for verb in VERBS[tool]:
        words: list[str | Path] = [BIN / tool, *([verb] if verb else []), "--help"]
        assert lost(words, folder, full=False) == (0, ""), words
        code, said = lost(words, folder, full=True)
        assert code == 1 and said.endswith(f": {CANNOT}\n") and said.count("\n") == 1, (words, said)


@pytest.mark.parametrize(
    "words",
    [
        ["fdl", "config", "show", "--json"],
        ["flodl-agent", "libtorch", "list"],
        ["flodl-ncclbuild", "list", "--json"],
        ["flodl-planes", "--version"],
        ["flodl-probe", "devices", "--json"],
        ["flodl-publish", "--version"],
        ["flodl-window", "runs", "--json"],
    ],
    ids=lambda words: words[0],
)
def test_what_a_command_only_tells_is_not_done_when_it_is_lost(words: list[str], project: Make) -> None:
    folder = project(train={"run": "python train.py"}).folder
    command: list[str | Path] = [BIN / words[0], *words[1:]]
    assert lost(command, folder, full=False) == (0, "")
    assert lost(command, folder, full=True) == (1, f"{words[0]}: {CANNOT}\n")


def test_a_run_and_what_is_made_of_it_stay_done(project: Make) -> None:
    made = project(train={"run": rank_command("plain_rank.py", "--epochs", "2")})
    code, said = lost([BIN / "fdl", "@one", "train"], made.folder, full=True)
    assert code == 0 and f"flodl-window: {DONE}" in said and "done: " in said, said
    for words, made_it in ((["report"], "runs/latest/report.html"), (["why", "--bundle", "b.tar.gz"], "b.tar.gz")):
        (made.folder / made_it).unlink(missing_ok=True)
        code, said = lost([BIN / "fdl", *words], made.folder, full=True)
        assert (code, said) == (0, f"flodl-window: {DONE}\n") and (made.folder / made_it).exists()
        (made.folder / made_it).unlink()
        assert lost([BIN / "fdl", *words], made.folder, full=False) == (0, "") and (made.folder / made_it).exists()


@pytest.mark.parametrize("full", [True, False])
def test_what_is_published_fetched_and_built_stays_so(tmp_path: Path, full: bool) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text("print('hello')\n")
    for words, there in (
        (["publish", f"file://{source}", "--bin", "train.py"], ".flodl/run/tree/.fdl-run.yml"),
        (["fetch", f"file://{tmp_path}/.flodl/run/tree", "--to", "copy"], "copy/tree/train.py"),
        (["build", "copy"], "copy/tree/train.py"),
    ):
        code, said = lost([BIN / "flodl-publish", *words], tmp_path, full=full)
        assert code == 0 and (tmp_path / there).exists(), said
        assert (f"flodl-publish: {DONE}\n" in said) == full


@pytest.mark.parametrize("full", [True, False])
def test_a_project_that_is_written_stays_so(tmp_path: Path, full: bool) -> None:
    code, said = lost([BIN / "fdl", "init", "new"], tmp_path, full=full)
    assert code == 0 and (tmp_path / "new/train.py").exists() and (f"fdl: {DONE}" in said) == full, said


def test_a_watch_ends_with_its_reader(project: Make) -> None:
    made = project(train={"run": rank_command("plain_rank.py", "--epochs", "400")})
    run = made.start("@one", "train")
    run.phase("training")
    assert lost([BIN / "fdl", "status", "--addr", f"127.0.0.1:{made.port}", "--watch"], made.folder, full=False) == (
        0,
        "",
    )
    run.interrupt()
    run.wait()

"""What Tab offers: asked of the tables, then of a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flodl_cli import cli_completion, main
from flodl_cli.completion import candidates
from flodl_cli.verbs import BUILTINS, VERBS

BREAKS = " \t\n\"'@><=;|&(:"  # bash's own COMP_WORDBREAKS


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fdl.yml").write_text(
        "commands:\n"
        "  train: {entry: x, options: {epochs: 1, lr: 2, off: false}, commands: {quick: {}, long: {}}}\n"
        "  test: {run: pytest}\n"
        "  broken: {path: nowhere}\n"
    )
    (tmp_path / "fdl.cluster.yml").write_text("commands: {only-there: {run: x}}\n")
    (tmp_path / "fdl.cloud.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("before", "current", "expected"),
    [
        ([], "t", ["train", "test"]),
        ([], "@", ["@cloud", "@cluster"]),
        ([], "--g", ["--gpus"]),
        ([], "--no", ["--no-append", "--no-prebuild"]),
        (["@cluster"], "on", ["only-there"]),
        (["--env", "cluster"], "on", ["only-there"]),
        (["--env=cluster", "-v"], "on", ["only-there"]),
        (["--"], "te", ["test"]),
        (["--env"], "cl", ["cloud", "cluster"]),
        ([], "--env=cl", ["--env=cloud", "--env=cluster"]),
        (["--mode"], "cpu_s", ["cpu_sync"]),
        (["--gpus"], "a", ["all"]),
        (["train"], "", ["quick", "long"]),
        (["train"], "--", ["--epochs", "--lr"]),
        (["train", "quick"], "--e", ["--epochs"]),
        (["train", "file"], "q", []),
        (["test"], "", []),
        (["broken"], "", []),
        (["nccl"], "b", ["build"]),
        (["config"], "", ["show"]),
        (["config", "show"], "@cl", ["@cloud", "@cluster"]),
        (["status"], "@clu", ["@cluster"]),
        (["help"], "tr", ["train"]),
        (["help", "train"], "q", ["quick"]),
    ],
)
def test_what_may_stand_there_is_offered(project: Path, before: list[str], current: str, expected: list[str]) -> None:
    assert candidates(before, current) == expected


def test_the_first_word_is_anything_that_fdl_takes_and_a_broken_manifest_costs_only_its_own(project: Path) -> None:
    assert {"train", "test", "broken", "@cluster", *VERBS, *BUILTINS, "--gpus"} <= set(candidates([], ""))
    (project / "fdl.yml").write_text("a: [")
    assert {*VERBS, *BUILTINS, "@cluster"} <= set(candidates([], ""))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fdl @clu", ["cluster"]),
        ("fdl --env=clu", ["cluster"]),
        ("fdl 'tr", ["train"]),
        ("fdl train ", ["quick", "long"]),
    ],
)
def test_the_part_that_bash_keeps_is_cut_off(project: Path, line: str, expected: list[str]) -> None:
    assert cli_completion.answer(BREAKS, line) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_takes_the_script_and_completes_with_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    code = "import sys; from flodl_cli.main import main; sys.exit(main(sys.argv[1:]))"
    ask = (
        f'fdl() {{ "{sys.executable}" -c "{code}" "$@"; }}\n'
        + script
        + 'ask() { COMP_LINE=$1; COMP_POINT=${#1}; COMPREPLY=(); _fdl; printf "%s;" "${COMPREPLY[@]}"; echo; }\n'
        + "ask 'fdl @clu'; ask 'fdl train '; complete -p fdl"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "PYTHONPATH": paths, "COMP_WORDBREAKS": BREAKS}
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=False, env=env)
    assert done.stdout.splitlines()[:2] == ["cluster;", "quick;long;"], done.stderr
    assert "-F _fdl fdl" in done.stdout


def test_anything_else_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", "fish"]) == 2
    assert "it only knows `bash`" in capsys.readouterr().err
    assert main.main(["completion", "--help"]) == 0

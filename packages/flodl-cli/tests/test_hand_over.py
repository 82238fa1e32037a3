"""The seams where fdl becomes another process, with recording stand-ins in the place of the siblings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_box import Box

from flodl_cli import command_line, project_command
from flodl_cli.verb_handover import hand_over_config
from flodl_cli.verbs import VERBS
from flodl_wire import blob, environ
from flodl_wire.faults import Refused
from flodl_wire.specs import LaunchConfig


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "box")


def test_an_address_alone_goes_straight_to_the_window(box: Box) -> None:
    box.tool("flodl-window")
    (box.project / "fdl.yml").write_text("this: is\n- broken")
    assert box.fdl("status", "--addr", "10.0.0.1:4000", "--json").returncode == 0
    recorded = box.recorded()
    assert (recorded["name"], recorded["argv"]) == ("flodl-window", ["status", "--addr", "10.0.0.1:4000", "--json"])
    assert environ.CONFIG_JSON not in recorded["env"]  # type: ignore[operator]


@pytest.mark.parametrize("file", ["@/etc/flodl/token", "@token"])
def test_a_file_that_holds_a_token_is_no_environment(box: Box, file: str) -> None:
    """As docs/walk-ins.md types it."""
    box.tool("flodl-agent")
    assert box.fdl("join", "10.0.0.1", "--token", file, "--bin", "train.py").returncode == 0
    assert box.recorded()["argv"] == ["join", "10.0.0.1", "--token", file, "--bin", "train.py"]


def test_the_tool_beside_fdl_wins_over_path_and_path_will_do(box: Box) -> None:
    box.tool("flodl-probe", box.folder / "path")
    assert box.fdl("probe", "--json").returncode == 0
    assert box.recorded()["name"] == "flodl-probe"
    box.record.unlink()
    box.tool("flodl-probe")
    (box.folder / "path" / "flodl-probe").write_text("#!/bin/sh\nexit 9\n")
    assert box.fdl("probe").returncode == 0
    assert box.record.exists()


def test_exit_codes_are_the_tools_own(box: Box) -> None:
    box.tool("flodl-window")
    assert box.fdl("status", EXIT="7").returncode == 7


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (["status"], "flodl-window"),
        (["status", "--addr", "h"], "flodl-window"),
        (["probe"], "flodl-probe"),
        (["join", "h"], "flodl-agent"),
        (["publish", "x"], "flodl-publish"),
        (["nccl", "check", "x"], "flodl-ncclbuild"),
        (["nccl", "build", "--dry-run"], "flodl-ncclbuild"),
        (["help", "start"], "flodl-window"),
        (["--gpus", "cpu:2", "train"], "flodl-window"),
    ],
)
def test_a_missing_tool_names_the_package_to_install(box: Box, words: list[str], package: str) -> None:
    (box.project / "fdl.yml").write_text("commands: {train: {run: 'true', cluster: true}}")
    answer = box.fdl(*words)
    assert answer.returncode == 127
    assert f"fix: pip install {package}" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_launcher_gets_the_run_and_the_words_untouched(box: Box) -> None:
    box.tool("flodl-window")
    (box.project / "fdl.yml").write_text(
        "publish: {to: out}\ncommands: {train: {run: python train.py, cluster: true, mode: cpu_sync, env: {A: 'x y'}}}"
    )
    words = ["--lr", "-1", "", "a b", "--", "--json", "é\n$"]
    sub = box.project / "sub"
    sub.mkdir()
    assert box.fdl("--gpus", "cpu:2", "train", *words, cwd=sub, USER="op", FLODL_HOST_NAME="here").returncode == 0
    recorded = box.recorded()
    env: dict[str, str] = recorded["env"]  # type: ignore[assignment]
    assert recorded["argv"] == ["launch", "--", "python", "train.py", *words]
    assert recorded["cwd"] == str(box.project)
    config = blob.decode(env[environ.CONFIG_JSON], LaunchConfig, "config")
    assert (config.mode, config.manifest, config.env) == ("cpu_sync", str(box.project / "fdl.yml"), {"A": "x y"})
    assert config.cluster is not None and config.served == "out"
    assert (config.cluster.workers[0].host, config.cluster.workers[0].local_devices) == ("here", "cpu:2")
    assert env[environ.FDL_CMD] == "train"
    assert env[environ.HOST_USER] == "op"
    assert environ.FULL_CLUSTER_JSON in env


def test_inside_a_rank_the_command_runs_and_no_cluster_is_opened_again(box: Box) -> None:
    box.tool("flodl-window")
    box.tool("work")
    (box.project / "fdl.yml").write_text(f"commands: {{train: {{run: {box.bin}/work, cluster: true}}}}")
    assert box.fdl("--gpus", "cpu:2", "train", "x", **{environ.CLUSTER_JSON: "00"}).returncode == 0  # type: ignore[arg-type]
    assert (box.recorded()["name"], box.recorded()["argv"]) == ("work", ["x"])


@pytest.mark.parametrize(
    ("said", "code", "told"),
    [
        ("=20260101-000001-aaab", 1, "fix: did you mean 20260101-000001-aaaa?"),
        ("=runs/20260101-000001-aaaa/checkpoint.safetensors", 1, "it is cut short, or no safetensors file"),
        ("=auto", 0, ""),
        ("=never", 0, ""),
    ],
)
def test_what_cannot_be_gone_on_from_is_told_before_the_program_starts(
    box: Box, said: str, code: int, told: str
) -> None:
    """From the folder that the command begins in, wherever it is typed."""
    box.tool("work")
    (box.project / "fdl.yml").write_text(f"commands: {{train: {{run: {box.bin}/work}}}}")
    saved = box.project / "runs" / "20260101-000001-aaaa"
    saved.mkdir(parents=True)
    (saved / "checkpoint.safetensors").write_bytes(b"half")
    answer = box.fdl(f"--resume{said}", "train", cwd=saved)
    assert (answer.returncode, box.record.exists()) == (code, code == 0) and told in answer.stderr


def test_a_shell_line_may_go_elsewhere_first_and_finds_its_own_runs(box: Box) -> None:
    box.tool("work")
    (box.project / "fdl.yml").write_text(f"commands: {{train: {{run: 'cd / && {box.bin}/work'}}}}")
    assert box.fdl("--resume", "train").returncode == 0
    assert box.recorded()["env"][environ.RESUME] == "latest"  # type: ignore[index]


def test_the_runs_lie_where_the_command_s_own_environment_says(box: Box) -> None:
    box.tool("work")
    (box.project / "fdl.yml").write_text(f"commands: {{train: {{run: {box.bin}/work, env: {{FLODL_RUN_DIR: out}}}}}}")
    answer = box.fdl("--resume", "train")
    assert answer.returncode == 1 and f"no run below {box.project}/out/runs left a checkpoint" in answer.stderr


def test_a_command_replaces_fdl_in_the_projects_folder(box: Box) -> None:
    (box.project / "fdl.yml").write_text(
        "commands: {pid: {run: 'echo $$ $PPID; pwd; exit 3'}, die: {run: 'kill -TERM $$'}}"
    )
    deep = box.project / "a" / "b"
    deep.mkdir(parents=True)
    answer = box.fdl("pid", cwd=deep)
    assert answer.returncode == 3
    assert answer.stdout.splitlines()[1] == str(box.project)
    assert answer.stdout.split()[1] == str(os.getpid()), "no fdl is left between us and the command"
    assert box.fdl("die").returncode == -signal.SIGTERM


def test_a_program_that_is_not_there_is_127(box: Box) -> None:
    (box.project / "fdl.yml").write_text("commands: {a: {run: pyhton x.py}, b: {run: ./file}}")
    (box.project / "file").write_text("text")
    for command in ("a", "b"):
        answer = box.fdl(command)
        assert answer.returncode == 127
        assert "cannot run" in answer.stderr
        assert "Traceback" not in answer.stderr


def test_another_tool_of_ours_is_found_on_path_by_its_name(box: Box) -> None:
    box.tool("fdl-hello", box.folder / "path")
    assert box.fdl("hello", "-x", "@y").returncode == 0
    assert box.recorded()["argv"] == ["-x", "@y"]
    (box.project / "fdl.yml").write_text("commands: {hello: {run: 'true'}}")
    answer = box.fdl("hello")
    assert answer.returncode == 1
    assert "cannot tell which 'hello' is meant" in answer.stderr


def test_a_tool_with_the_name_of_a_verb_is_refused_and_help_still_helps(box: Box) -> None:
    box.tool("flodl-window")
    box.tool("fdl-status", box.folder / "path")
    answer = box.fdl("status")
    assert answer.returncode == 1
    assert "it is fdl's own, and " in answer.stderr and "fdl-status has its name" in answer.stderr
    assert box.fdl("help").returncode == 0


def test_strange_names_and_no_locale_do_not_matter(box: Box) -> None:
    folder = box.folder / "gör an \udcff"
    folder.mkdir()
    (folder / "fdl.yml").write_text("description: é🙂\ncommands: {say: {run: 'printf %s \"$1\"', description: 🙂}}")
    for env in ({"LC_ALL": "C"}, {"LC_ALL": "en_US.ISO-8859-1", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        assert box.fdl("say", "é🙂", cwd=folder, **env).stdout == "é🙂"
        answer = box.fdl("help", cwd=folder, **env)
        assert (answer.returncode, answer.stderr) == (0, "")
        answer = box.fdl("no🙂", cwd=folder, **env)
        assert answer.returncode == 127
        assert "Traceback" not in answer.stderr
        assert "Traceback" not in box.fdl("config", "show", cwd=folder, **env).stderr


def test_a_deleted_folder_is_said(box: Box) -> None:
    gone = box.project / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from flodl_cli.main import main; sys.exit(main(['train']))"
    paths = os.pathsep.join(path for path in sys.path if path)
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=gone,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, "Traceback" in answer.stderr) == (1, False)
    assert "no longer exists" in answer.stderr


def test_python_is_the_one_that_runs_fdl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/env")
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("VIRTUAL_ENV", "/somebody/elses")
    project_command._put_our_python_first()
    assert os.environ["PATH"] == "/usr/bin", "another environment was activated on purpose"
    monkeypatch.delenv("VIRTUAL_ENV")
    project_command._put_our_python_first()
    assert os.environ["PATH"] == "/env/bin:/usr/bin"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_folder_whose_name_is_no_text_is_one_sentence_for_every_verb(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "fdl.yml").write_text("commands: {train: {run: x}}\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("FDL_ENV", raising=False)
    with pytest.raises(Refused, match=rf"cannot hand the project to `fdl {verb}`: .*caf.udce9.* are not UTF-8"):
        hand_over_config(command_line.parse([verb]))

"""`fdl init`: what it writes is a project, and nothing that was there is touched."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from flodl_cli import cli_init, cluster_block, main, manifest, project_files


def test_the_project_is_one_that_fdl_understands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "demo"
    assert main.main(["init", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert sorted(out.split()) == sorted(str(folder / name) for name in cli_init.FILES.values())
    assert "fdl --gpus cpu:2 train" in err
    project = project_files.load(str(folder), None)
    assert project is not None
    commands = manifest.commands_of(project)
    assert (commands["train"].run, commands["train"].cluster) == ("python train.py", True)
    ast.parse((folder / "train.py").read_text())


def test_the_example_of_a_cluster_becomes_one_by_its_new_name(tmp_path: Path) -> None:
    cli_init.write(str(tmp_path))
    (tmp_path / "fdl.cluster.yml.example").rename(tmp_path / "fdl.cluster.yml")
    project = project_files.load(str(tmp_path), "cluster")
    assert project is not None
    block = project.config.get("cluster")
    assert block is not None
    assert [worker.host for worker in cluster_block.parse(block).workers] == ["node-a", "node-b"]


@pytest.mark.parametrize("name", list(cli_init.FILES.values()))
def test_one_file_that_is_there_keeps_all_the_others_away(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).symlink_to("nowhere")
    assert main.main(["init", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert f"there is already {name}" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["init", "a", "b"], ["init", "--force"]])
def test_what_it_does_not_take_is_a_usage_error(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(words) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main.main(["init", str(tmp_path / "file" / "x")]) == 1
    assert "cannot write a project" in capsys.readouterr().err


def test_help_of_init_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["init", "--help"]) == 0
    assert "usage: fdl init [DIR]" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path: Path) -> None:
    """The system's limit on a file's size stands in for the disk: the first small files fit, train.py does not."""
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
        "from flodl_cli.main import main; sys.exit(main(['init', 'new/demo']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "train.py" in done.stderr and "nothing is left of it" in done.stderr
    assert list(tmp_path.iterdir()) == []
    mine = tmp_path / "mine"
    mine.mkdir()
    done = subprocess.run([sys.executable, "-c", program.replace("new/demo", "mine")], cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert (mine.is_dir(), list(mine.iterdir())) == (True, []), "a folder that was there stays"

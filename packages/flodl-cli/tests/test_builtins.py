"""help, version and config show, and the words that mean nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from flodl_cli import cli_config, cli_help, cluster, main, project_files
from flodl_cli.verbs import VERBS
from flodl_wire.specs import LaunchConfig


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fdl.yml").write_text("commands:\n  train: {run: python train.py, description: learn, cluster: true}\n")
    (tmp_path / "fdl.cluster.yml").write_text(
        "cluster:\n  controller: {host: h, path: /p}\n  workers: [{host: a, local_devices: 'cpu:2', path: /p}]\n"
    )
    return tmp_path


def test_help_lists_commands_environments_and_verbs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 0
    text = capsys.readouterr().out
    assert "train         learn (cluster)" in text
    assert "@cluster" in text
    assert "--gpus DEVICES" in text
    assert main.main(["--help"]) == 0
    assert capsys.readouterr().out == text


def test_help_works_where_the_manifest_does_not(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "fdl.yml").write_text("a: [")
    assert main.main(["help"]) == 0
    text = capsys.readouterr().out
    assert "cannot be shown" in text
    assert "fdl's own" in text


def test_a_verb_is_listed_when_its_tool_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "flodl_window"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "cli_status.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(cli_help.importlib.util.sys.modules, "flodl_window", raising=False)  # type: ignore[attr-defined]
    assert cli_help._has_verb(VERBS["status"], "status")
    assert not cli_help._has_verb(VERBS["start"], "start")
    assert cli_help._has_verb(VERBS["probe"], "probe")


def test_version_names_every_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("fdl ")
    assert main.main(["version"]) == 0
    assert "flodl-cli " in capsys.readouterr().out
    assert main.main(["version", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["packages"]["flodl-wire"]


def test_config_show_as_json_is_what_a_tool_takes_as_its_config(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import msgspec

    assert main.main(["@cluster", "config", "show", "--json"]) == 0
    text = capsys.readouterr().out
    config = msgspec.json.decode(text.encode(), type=LaunchConfig)
    assert config.cluster is not None
    assert config.manifest == str(project / "fdl.yml")
    assert json.loads(text)["sources"]["cluster.controller.host"] == "fdl.cluster.yml:2"


def test_config_show_reads_back_as_the_same_config(tmp_path: Path) -> None:
    values = [
        "x",
        "yes",
        "1",
        "1.5",
        "",
        " a",
        "a: b",
        "a #b",
        "- a",
        "@x",
        "é🙂",
        "a\nb",
        "null",
        "~",
        "[a]",
        "2026-01-01",
        "'",
        "0x1",
    ]
    tree = {"description": "x", "join": {f"k{i}": value for i, value in enumerate(values)}}
    tree["publish"] = {
        "args": values,
        "list": [{"a": 1, "b": ["c", {"d": None}]}, [1, [2]], {}],
        "long": ["word" * 10] * 4,
        "on": True,
    }
    (tmp_path / "fdl.yml").write_text(yaml.safe_dump(tree, allow_unicode=True))
    project = project_files.load(str(tmp_path), None)
    assert project is not None
    assert yaml.safe_load(cli_config.as_text(project)) == tree


def test_config_show_shows_what_is_wrong_and_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "fdl.yml").write_text("comands: {}\n")
    assert main.main(["config", "show"]) == 1
    out, err = capsys.readouterr()
    assert "comands: {}" in out
    assert "did you mean commands?" in err


@pytest.mark.parametrize("words", [["config"], ["config", "shwo"], ["config", "show", "x"]])
def test_config_knows_show_only(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(words) == 2
    assert "fdl config show [--json]" in capsys.readouterr().err


def test_without_a_project_words_mean_nothing_and_help_says_what_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if project_files.nearest_manifest(str(tmp_path)) is None:
        assert main.main(["statsu"]) == 127
        assert "did you mean `fdl status`?" in capsys.readouterr().err
        assert main.main(["@cluster", "train"]) == 1
        assert "there is no fdl.yml" in capsys.readouterr().err
        assert main.main(["config", "show"]) == 1


def test_the_login_name_is_never_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setenv("USER", "op")
    assert cluster.resolve_local_user() == "op"
    monkeypatch.setenv("USER", "")
    assert cluster.resolve_local_user() == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cluster.resolve_local_user() is None


def package(place: Path, name: str, points: str) -> None:
    """An installed package as pip leaves it: a module, and its entry points in a text file."""
    (place / f"{name}.py").write_text("def main(words):\n    print(words)\n    return len(words)\n")
    info = place / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[fdl.verbs]\n{points}\n")


def test_an_entry_point_is_a_command_and_two_of_one_name_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package(tmp_path, "first_of_two", "hello = first_of_two:main\ntwice = first_of_two:main\nlost = first_of_two:gone")
    package(tmp_path, "second_of_two", "twice = second_of_two:main [extra]")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.chdir(tmp_path)
    assert main.main(["hello", "-x", "@y", "z"]) == 3
    assert capsys.readouterr().out == "['-x', '@y', 'z']\n"
    assert main.main(["twice"]) == 1
    said = capsys.readouterr().err
    assert "first_of_two:main of first_of_two" in said and "second_of_two:main of second_of_two" in said
    assert main.main(["lost"]) == 1
    assert "pip install --force-reinstall first_of_two" in capsys.readouterr().err
    assert main.main(["helo"]) == 127
    assert "did you mean `fdl hello`?" in capsys.readouterr().err
    assert main.main([]) == 0
    assert "\n  hello " in capsys.readouterr().out
    (tmp_path / "fdl.yml").write_text("commands: {hello: {run: 'true'}}")
    assert main.main(["hello"]) == 1
    assert "first_of_two:main of first_of_two is a tool of that name" in capsys.readouterr().err

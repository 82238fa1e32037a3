"""Transcripts: a project's files and what `fdl` answers in it, as text a person can read and a run can rewrite.

A transcript holds file sections (`=== name`, then the file), then commands (`$ fdl …`), each with its output: stdout
as it is, stderr with `! ` in front, what would be exec'ed as `exec …`, and `[N]` for an exit code but 0. `<project>`
stands for the folder. REWRITE_TRANSCRIPTS=1 writes what happened into the file instead of comparing.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import NoReturn

import pytest

from flodl_cli import cli_config, main, project_command, project_files, sibling
from flodl_cli.planned_run import Run
from flodl_wire import environ
from flodl_wire.faults import Fault

TOOLS = "/tools"
INTERNAL = "<INTERNAL>_"  # the prefix of our own variables, which is spelled out in one file only
HERE = Path(__file__).parent / "transcripts"


class Became(Exception):
    """In place of exec: the process is another program from here on."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines


def check(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Play the transcript in `path` inside the empty `folder` and compare."""
    said = path.read_text()
    happened = _play(said, folder, monkeypatch, capsys)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(happened)
    else:
        assert happened == said


def _play(said: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    head, _, script = said.partition("\n$ ")
    _write_files(head, folder)
    parts = [head]
    _stand_in(monkeypatch)
    for step in ("\n$ " + script).split("\n$ ")[1:]:
        command = step.splitlines()[0]
        parts.append(f"\n$ {command}\n{_run(command, folder, monkeypatch, capsys)}")
    return "".join(parts)


def _write_files(head: str, folder: Path) -> None:
    for section in ("\n" + head).split("\n=== ")[1:]:
        name, _, body = section.partition("\n")
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(body.rstrip("\n").replace(INTERNAL, environ.INTERNAL_PREFIX) + "\n" if body.strip() else "")


def _run(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    words = shlex.split(command)
    place = folder
    before = dict(os.environ)
    with monkeypatch.context() as patch:
        while words[0] != "fdl":
            name, _, value = words.pop(0).partition("=")
            if name == "cd":
                place = folder / value
            else:
                patch.setenv(name, value)
        patch.chdir(place)
        code: int | None = 0
        became: list[str] = []
        try:
            code = main.main(words[1:])
        except Became as end:
            became = end.lines
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
    os.environ.clear()
    os.environ.update(before)
    lines = out.splitlines() + [f"! {line}".rstrip() for line in err.splitlines()] + became
    if code:
        lines.append(f"[{code}]")
    text = "\n".join(line.rstrip() for line in lines).replace(str(folder), "<project>")
    return text.replace(environ.INTERNAL_PREFIX, INTERNAL) + "\n"


def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the two places where fdl becomes another process, and every tool it may look for."""

    def become(run: Run) -> NoReturn:
        shown = [f"exec {shlex.join(run.argv)}", f"  in {run.folder}"]
        shown += [
            f"  {name} unset" if value is None else f"  {name}={_value(value)}"
            for name, value in sorted(run.env.items())
            if _shown(name, value)
        ]
        raise Became(shown)

    def hand_over(argv: list[str]) -> NoReturn:
        shown = [f"exec {shlex.join(argv)}"]
        config = os.environ.get(environ.CONFIG_JSON)
        raise Became(shown if config is None else [*shown, f"  {environ.CONFIG_JSON}={_value(config)}"])

    monkeypatch.setattr(project_command, "_become", become)
    monkeypatch.setattr(sibling, "hand_over", hand_over)
    monkeypatch.setattr(
        sibling, "find", lambda name: f"{TOOLS}/{name}" if name.startswith(("flodl-", "docker")) else None
    )
    monkeypatch.setattr("flodl_cli.gpus.visible", lambda: [int(n) for n in os.environ.get("TEST_GPUS", "").split()])
    monkeypatch.setenv("FLODL_HOST_NAME", "node-a")
    monkeypatch.setenv("USER", "op")


def _shown(name: str, value: str | None) -> bool:
    return value is not None or name not in (
        environ.CONFIG_JSON,
        environ.MODE,
        environ.FDL_ENV,
        environ.CLUSTER_EXTRA_HOSTS,
    )


def _value(text: str) -> str:
    """Hex JSON as the JSON it is."""
    try:
        return json.dumps(json.loads(bytes.fromhex(text)), ensure_ascii=False)
    except ValueError:
        return text


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.txt")))
def test_fdl_answers_as_the_transcript_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path.resolve() / "project"
    project.mkdir()
    check(HERE / f"{name}.txt", project, monkeypatch, capsys)


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.txt")))
def test_what_config_show_prints_is_a_manifest_that_means_the_same(name: str, tmp_path: Path) -> None:
    """Of each project in the transcripts, under each of its overlays that can be read; a token is shown as dots."""
    head = (HERE / f"{name}.txt").read_text().partition("\n$ ")[0]
    _write_files(head, tmp_path / "project")
    roots = {path.parent for pattern in ("fdl.yml", "fdl.yaml") for path in (tmp_path / "project").rglob(pattern)}
    for root in roots:
        for env in (None, *project_files.overlays(str(root))):
            try:
                project = project_files.load(str(root), env)
            except Fault:
                continue
            assert project is not None
            again = tmp_path / "again"
            again.mkdir(exist_ok=True)
            (again / "fdl.yml").write_text(cli_config.as_text(project))
            read = project_files.load(str(again), None)
            assert read is not None
            shown, meant = json.dumps(read.config.plain()), json.dumps(project.config.plain())
            assert "token" in meant or shown == meant


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.txt")))
def test_every_refusal_says_why_and_what_to_do(name: str) -> None:
    for answer in (HERE / f"{name}.txt").read_text().split("\n$ ")[1:]:
        refusal = [line for line in answer.splitlines() if line.startswith("! fdl: cannot")]
        if refusal:
            assert ": " in refusal[0].removeprefix("! fdl: "), answer
            assert "\n! fix: " in answer, answer
            assert "Traceback" not in answer
            assert "exec " not in answer, "nothing is started"

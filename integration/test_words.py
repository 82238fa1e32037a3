"""Arguments and variables reach every rank byte for byte."""

from __future__ import annotations

import json
import re
from typing import Any

from integration.conftest import Make
from integration.project import rank_command
from integration.running import Running

ODD = {
    "EMPTY": "",
    "SPACES": "  two  words ",
    "QUOTES": 'it\'s "so"',
    "DOLLAR": "$HOME ${X} $(id) `id`",
    "LINES": "one\ntwo\n",
    "BACKSLASH": "a\\n\\\\b",
    "UNICODE": "größe ✓ 試",
    "GLOB": "*?[a]{b,c}~",
    "SEMICOLON": "a;b&&c|d>e",
    "EQUALS": "x=y=z",
}


def said(run: Running) -> dict[int, Any]:
    """What say.py printed, by rank."""
    found = [match.group(1) for line in [*run.out, *run.err] if (match := re.match(r"\[\S+:\d+\] (\{.*)", line))]
    return {document["rank"]: document for document in map(json.loads, found)}


def test_arguments_behind_the_command_arrive_untouched(project: Make) -> None:
    words = [*ODD.values(), "-v", "--help", "--", "@cluster", "--gpus", "-1e-3"]
    run = project(say={"run": rank_command("say.py", "--"), "mode": "torch"}).start("@one", "say", *words)
    run.done()
    assert {rank: document["argv"] for rank, document in said(run).items()} == {0: words, 1: words}


def test_arguments_pass_a_run_line_that_needs_a_shell_untouched_too(project: Make) -> None:
    words = list(ODD.values())
    line = f"test -n x && {rank_command('say.py', '--')}"
    run = project(say={"run": line, "mode": "torch"}).start("@one", "say", *words)
    run.done()
    assert {rank: document["argv"] for rank, document in said(run).items()} == {0: words, 1: words}


def test_variables_of_cluster_command_and_worker_arrive_byte_for_byte_and_the_nearest_wins(project: Make) -> None:
    names = [*ODD, "WHO", "COMMANDS"]
    line = rank_command("say.py", *(word for name in names for word in ("--env", name)))
    made = project(say={"run": line, "mode": "torch", "env": {"WHO": "command", "COMMANDS": "own"}})
    block = made.one_box(2)
    block["env"] = {**ODD, "WHO": "cluster", "EMPTY": "not empty"}
    block["workers"][0]["env"] = {"WHO": "worker", "EMPTY": ""}
    made.write("fdl.one.yml", {"cluster": block})
    run = made.start("@one", "say")
    run.done()
    expected = {**ODD, "WHO": "worker", "COMMANDS": "own"}
    assert {rank: document["env"] for rank, document in said(run).items()} == {0: expected, 1: expected}


def test_a_project_whose_path_has_spaces_and_umlauts_trains_without_a_locale(project: Make) -> None:
    made = project(folder="gör an", say={"run": rank_command("say.py"), "mode": "torch"})
    run = made.start("@one", "say", env={"LC_ALL": "C", "LANG": "C"})
    run.done()
    assert {document["cwd"] for document in said(run).values()} == {str(made.folder)}


def test_a_line_that_is_no_utf8_and_a_very_long_one_pass_the_logs(project: Make) -> None:
    made = project(say={"run": "python rank.py", "mode": "torch"})
    (made.folder / "rank.py").write_text(
        "import sys\nsys.stdout.buffer.write(b'bad \\xff byte\\n' + b'x' * 200_000 + b'\\nlast without end')\n"
    )
    run = made.start("@one", "say")
    run.done()
    assert any(":0] bad " in line for line in run.out + run.err)
    assert any(":1] last without end" in line for line in run.out + run.err)

"""What each road imports: start-up is felt in every command, and an import crept in is never noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "yaml",
    "msgspec",
    "json",
    "re",
    "typing",
    "pathlib",
    "argparse",
    "subprocess",
    "dataclasses",
    "importlib.metadata",
    "torch",
)

WATCH = """\
import sys, os
from flodl_cli import main, sibling
sibling.find = lambda name: "/x/" + name if name.startswith("flodl-") else None
def stop(argv):
    print(" ".join(sorted(set(%r) & set(sys.modules))))
    os._exit(0)
sibling.hand_over = stop
sys.stdout = os.fdopen(1, "w", buffering=1)
main.main(%r)
"""


def imported(words: list[str], folder: Path) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", WATCH % (HEAVY, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    bare = subprocess.run(
        [sys.executable, "-c", f"import sys; print(' '.join(set({HEAVY!r}) & set(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stdout.split()) - set(bare.stdout.split())


@pytest.mark.parametrize("words", [["status", "--json", "--addr", "h"], ["start", "--addr=h"]])
def test_an_address_costs_a_bare_python_start(tmp_path: Path, words: list[str]) -> None:
    assert imported(words, tmp_path) == set()


def test_status_without_a_project_reads_no_yaml(tmp_path: Path) -> None:
    assert imported(["status"], tmp_path) <= {"json", "re", "typing"}


def test_status_with_an_overlay_reads_yaml_and_never_msgspec(tmp_path: Path) -> None:
    (tmp_path / "fdl.yml").write_text("commands: {}")
    (tmp_path / "fdl.cluster.yml").write_text(json.dumps({"cluster": {"controller": {"host": "h", "path": "/p"}}}))
    seen = imported(["@cluster", "status"], tmp_path)
    assert "yaml" in seen
    assert seen <= {"yaml", "json", "re", "typing"}


@pytest.mark.parametrize("words", [["help"], ["config", "show"], ["completion", "bash"]])
def test_what_explains_the_project_starts_without_what_only_runs_need(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "fdl.yml").write_text("commands: {train: {entry: x, mode: cpu_sync, options: {a: 1}, docker: dev}}")
    code = f"import sys; from flodl_cli.main import main; main({words!r}); print(sorted(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    loaded = said.splitlines()[-1]
    for name in ("msgspec", "argparse", "importlib.metadata", "asyncio", "http.client", "subprocess", "email"):
        assert f"'{name}'" not in loaded


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_closed_ends_no_command(tmp_path: Path, closed: str) -> None:
    program = "import sys; from flodl_cli.main import main; sys.exit(main(['version']))"
    line = f'exec "$0" -c "$1" {closed}'
    done = subprocess.run(["sh", "-c", line, sys.executable, program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("flodl-cli") == (closed in ("<&-", "2>&-"))

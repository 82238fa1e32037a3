"""How the suites themselves run: what shares a lab stays on one worker, and CI leaves nothing out in silence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARING = """
import pytest
@pytest.mark.parametrize("number", range(6))
def test_one(number): pass
"""
LEFT_OUT = """
import pytest
def test_of_hardware(): pytest.skip("needs a GPU")
def test_of_a_tool(): pytest.skip("no frob here: apt install frob")
@pytest.mark.skipif(True, reason="no frob here: apt install frob")
def test_of_a_mark(): pass
@pytest.fixture
def frob(): pytest.skip("no frob here: apt install frob")
def test_of_a_fixture(frob): pass
def test_that_runs(): pass
"""


def suite(folder: Path, *words: str, ci: bool = False, torch: bool = True) -> subprocess.CompletedProcess[str]:
    """pytest in `folder`, by itself."""
    without = "" if torch else "sys.modules['torch'] = None; "
    code = f"import sys; {without}import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI"))}
    return subprocess.run(
        [sys.executable, "-c", code, "-p", "no:cacheprovider", "-rA", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**env, **({"CI": "true"} if ci else {})},
        check=False,
    )


def test_the_integration_suite_keeps_a_file_on_one_worker(tmp_path: Path) -> None:
    """By the option that `make integration` gives: what a module's fixture makes is then made once."""
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "integration -n " in line]
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(SHARING)
    done = suite(tmp_path, "-n", "2", *line.split()[-2:], "-v")
    ran = [line.split() for line in done.stdout.splitlines() if line.startswith("[gw") and "PASSED" in line]
    workers = [{line[0] for line in ran if f"test_{name}.py" in line[-1]} for name in "abc"]
    assert len(ran) == 18 and [len(each) for each in workers] == [1, 1, 1], done.stdout


def of_one_file(folder: Path, text: str) -> Path:
    shutil.copy(ROOT / "conftest.py", folder)
    (folder / "test_it.py").write_text(text)
    return folder


def test_under_ci_a_skip_is_a_failure_unless_the_box_may_lack_the_thing(tmp_path: Path) -> None:
    done = suite(of_one_file(tmp_path, LEFT_OUT), ci=True)
    ends = {
        line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "SKIPPED"))
    }
    assert ends == {
        "FAILED test_it.py::test_of_a_tool",
        "ERROR test_it.py::test_of_a_mark",
        "ERROR test_it.py::test_of_a_fixture",
        "SKIPPED [1] test_it.py:3: needs a GPU",
    }, done.stdout
    assert "no frob here: apt install frob\nUnder CI nothing is left out" in done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    "text", ["import pytest; pytest.importorskip('frob')", "import pytest; pytest.skip('f', allow_module_level=True)"]
)
def test_under_ci_a_file_that_is_left_out_whole_is_a_failure_too(tmp_path: Path, text: str) -> None:
    done = suite(of_one_file(tmp_path, text), ci=True)
    assert done.returncode == 2 and "ERROR test_it.py" in done.stdout, done.stdout


def test_elsewhere_a_test_that_lacks_something_is_skipped_with_its_reason(tmp_path: Path) -> None:
    done = suite(of_one_file(tmp_path, LEFT_OUT))
    assert done.returncode == 0 and "1 passed, 4 skipped" in done.stdout, done.stdout


def test_under_ci_the_half_that_needs_torch_is_not_left_out(tmp_path: Path) -> None:
    here = of_one_file(tmp_path, "def test_that_runs(): pass")
    done = suite(here, ci=True, torch=False)
    assert done.returncode == 4 and "torch is not installed" in done.stderr
    assert suite(here, torch=False).returncode == 0

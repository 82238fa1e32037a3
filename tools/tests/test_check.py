"""Each rule against the smallest tree that breaks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.check import RULES, check
from tools.rules.finding import Finding

INTERNAL = "FLODL_" + "INTERNAL_SECRET"


def findings(root: Path, files: dict[str, str]) -> list[Finding]:
    """The breaches in a tree that is in order but for `files`."""
    whole = {"README.md": "# t\n\n`make demo` and `make test`\n", **files}
    for name, text in whole.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for room in {parent for name in whole for parent in Path(name).parents if parent.parts}:
        if not (root / room / "README.md").exists() and "no-readme" not in room.parts:
            (root / room / "README.md").write_text("A room.\n")
    return check(root)


def places(found: list[Finding]) -> list[tuple[str, int]]:
    return [(finding.file, finding.line) for finding in found]


def test_a_tree_in_order_has_no_findings(tmp_path: Path) -> None:
    source = "from flodl_wire import faults\nimport flodl_agent.plan\n"
    assert findings(tmp_path, {"packages/flodl-agent/src/flodl_agent/agent.py": source}) == []


@pytest.mark.parametrize(
    "line",
    [
        "import flodl_window",
        "from flodl_window import ledger",
        "from flodl_window.ledger import Ledger",
        "def f():\n    import flodl_window.door",
    ],
)
def test_an_import_between_siblings_is_refused(tmp_path: Path, line: str) -> None:
    file = "packages/flodl-agent/src/flodl_agent/agent.py"
    found = findings(tmp_path, {file: line + "\n"})
    assert places(found) == [(file, len(line.splitlines()))]
    assert "flodl_agent imports flodl_window" in str(found[0])


def test_a_test_of_one_package_may_not_import_another_either(tmp_path: Path) -> None:
    file = "packages/flodl-agent/tests/test_agent.py"
    assert places(findings(tmp_path, {file: "import flodl_window\n"})) == [(file, 1)]


def test_files_that_need_each_other_in_a_ring_are_a_breach_however_late_they_import(tmp_path: Path) -> None:
    source = "packages/flodl-cli/src/flodl_cli"
    files = {
        f"{source}/one.py": "import os\nfrom flodl_cli.two import b\n",
        f"{source}/two.py": "def f():\n    from flodl_cli import three\n",
        f"{source}/three.py": "if TYPE_CHECKING:\n    from flodl_cli.one import a\n",
        f"{source}/four.py": "from flodl_cli import one, two, three\n",
    }
    (found,) = findings(tmp_path, files)
    assert {*found.what.removeprefix("a circle: ").split(" → ")} == {"one.py", "two.py", "three.py"}
    assert found.line in (1, 2)
    assert findings(tmp_path, {f"{source}/three.py": "x = 1\n"}) == []


def test_a_package_that_hands_its_names_on_is_no_ring(tmp_path: Path) -> None:
    source = "packages/flodl-cli/src/flodl_cli"
    files = {
        f"{source}/__init__.py": "from flodl_cli.one import a\n",
        f"{source}/one.py": "import flodl_cli\nfrom flodl_cli import two\n",
        f"{source}/two.py": "a = 1\n",
    }
    assert findings(tmp_path, files) == []


def test_an_internal_environment_name_stands_in_the_wire_alone(tmp_path: Path) -> None:
    line = f'NAME = "{INTERNAL}"\n'
    files = {
        "packages/flodl-wire/src/flodl_wire/environ.py": line,
        "packages/flodl-cli/src/flodl_cli/overlay.py": "x = 1\n" + line,
        "docs/env.md": line,
    }
    assert places(findings(tmp_path, files)) == [("packages/flodl-cli/src/flodl_cli/overlay.py", 2)]


def test_a_docstring_or_comment_may_say_an_internal_name_and_a_shell_script_may_not(tmp_path: Path) -> None:
    files = {"tools/x.py": f'"""Reads {INTERNAL}."""\n# {INTERNAL}\n', "tools/x.sh": f"echo\nexport {INTERNAL}=1\n"}
    assert places(findings(tmp_path, files)) == [("tools/x.sh", 2)]


def test_torch_is_refused_outside_planes_however_deep(tmp_path: Path) -> None:
    file = "packages/flodl-agent/src/flodl_agent/gpus.py"
    assert places(findings(tmp_path, {file: "def f():\n    import torch\n"})) == [(file, 2)]


def test_torch_is_refused_in_what_the_relay_loads_and_allowed_in_what_ranks_load(tmp_path: Path) -> None:
    planes = "packages/flodl-planes/src/flodl_planes/"
    files = {
        f"{planes}main.py": "def main():\n    from flodl_planes import cli_relay\n",
        f"{planes}cli_relay.py": "def main():\n    from flodl_planes.relay.process import serve\n",
        f"{planes}relay/process.py": "from flodl_planes.plane import segment\n",
        f"{planes}plane/segment.py": "import os\nimport torch\n",
        f"{planes}rank/trainer.py": "import torch\n",
    }
    assert places(findings(tmp_path, files)) == [(f"{planes}plane/segment.py", 2)]


def test_torch_inside_a_function_or_for_the_type_checker_is_allowed_there(tmp_path: Path) -> None:
    planes = "packages/flodl-planes/src/flodl_planes/"
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\ndef f():\n    import torch\n"
    assert findings(tmp_path, {f"{planes}role/roles.py": lazy}) == []


def test_a_long_file_is_refused(tmp_path: Path) -> None:
    assert places(findings(tmp_path, {"tools/long.py": "x = 1\n" * 451})) == [("tools/long.py", 451)]
    assert "has 451 lines" in str(check(tmp_path)[0])


def test_a_folder_without_readme_is_refused_and_src_and_tests_are_not(tmp_path: Path) -> None:
    packaged = ["packages/flodl-cli/tests/test_x.py", "packages/flodl-cli/src/flodl_cli/x.py"]
    files = {"tools/no-readme/x.py": "", **dict.fromkeys(packaged, "")}
    assert places(findings(tmp_path, files)) == [("tools/no-readme/README.md", 1)]


def test_a_readme_that_opens_with_a_heading_is_refused_but_not_on_the_front_page(tmp_path: Path) -> None:
    assert places(findings(tmp_path, {"docs/README.md": "# Docs\n"})) == [("docs/README.md", 1)]


@pytest.mark.parametrize("name", ["utils.py", "helpers/x.py", "common.py", "manager.py", "base.py"])
def test_a_vague_module_name_is_refused(tmp_path: Path, name: str) -> None:
    found = findings(tmp_path, {f"tools/{name}": ""})
    assert places(found) == [(f"tools/{name.split('/')[0]}", 1)]


@pytest.mark.parametrize(
    "text",
    ["import time\ntime.sleep(1)\n", "from time import sleep\nsleep(0.1)\n", "import asyncio\nasyncio.sleep(1)\n"],
)
def test_a_sleep_in_a_test_is_refused(tmp_path: Path, text: str) -> None:
    file = "packages/flodl-cli/tests/test_x.py"
    assert places(findings(tmp_path, {file: text, "tools/relay.py": text})) == [(file, 2)]


@pytest.mark.parametrize(
    "line", ["asyncio.sleep(0)", "threading.Event().wait()", "enough.wait(5)", "time.sleep(1)  # plays a slow device"]
)
def test_what_gives_way_waits_for_ever_has_a_fact_or_plays_somebody_is_no_sleep(tmp_path: Path, line: str) -> None:
    assert findings(tmp_path, {"tools/tests/test_x.py": f"import asyncio\n{line}\n"}) == []


def test_waiting_for_an_event_that_nobody_has_is_a_sleep(tmp_path: Path) -> None:
    file = "packages/flodl-cli/tests/test_x.py"
    assert places(findings(tmp_path, {file: "import threading\nthreading.Event().wait(0.5)\n"})) == [(file, 2)]


def test_only_a_helper_of_tests_may_look_again_and_again(tmp_path: Path) -> None:
    """It has the deadline that a loop in a test would lack."""
    loop = "while not seen():\n    time.sleep(0.1)\n"
    folder = "packages/flodl-cli/tests"
    files = {f"{folder}/cli_fakes.py": loop, f"{folder}/test_x.py": loop, "integration/once.py": "time.sleep(0.1)\n"}
    assert places(findings(tmp_path, files)) == [("integration/once.py", 1), (f"{folder}/test_x.py", 2)]


@pytest.mark.parametrize(
    "line",
    ["pytest.skip()", "pytest.skip('')", "pytest.skip(reason='')", "pytest.mark.skipif(True)"],
)
def test_a_skip_without_a_reason_is_refused(tmp_path: Path, line: str) -> None:
    files = {"tools/tests/test_x.py": f"import pytest\n{line}\n"}
    assert places(findings(tmp_path, files)) == [("tools/tests/test_x.py", 2)]


def test_a_skip_that_says_what_is_missing_is_fine(tmp_path: Path) -> None:
    lines = ["pytest.skip('no frob here')", "pytest.skip(f'no {what}')", "pytest.mark.skipif(True, reason=why)"]
    assert findings(tmp_path, {"tools/tests/test_x.py": "\n".join(lines)}) == []


@pytest.mark.parametrize("line", ["@pytest.mark.skip(reason='x')", "@pytest.mark.xfail", "pytest.xfail('x')"])
def test_a_test_that_is_left_out_for_good_is_refused(tmp_path: Path, line: str) -> None:
    text = f"{line}\ndef test_x(): pass\n" if line.startswith("@") else f"{line}\n"
    assert places(findings(tmp_path, {"tools/tests/test_x.py": text})) == [("tools/tests/test_x.py", 1)]


def test_a_registry_host_is_refused_in_any_file(tmp_path: Path) -> None:
    assert places(findings(tmp_path, {"uv.lock": "x\nregistry = 'https://pypi" + ".org/simple'\n"})) == [("uv.lock", 2)]


@pytest.mark.parametrize("path", ["/wo" + "rk/main/x", "/ro" + "ot/.ssh"])
def test_a_path_of_one_machine_is_refused(tmp_path: Path, path: str) -> None:
    assert places(findings(tmp_path, {"docs/x.md": f"see {path}\n"})) == [("docs/x.md", 1)]


def test_a_front_page_without_the_two_commands_is_refused(tmp_path: Path) -> None:
    found = findings(tmp_path, {"README.md": "# t\n\nmake demo\n"})
    assert places(found) == [("README.md", 1)] and "make test" in found[0].what


def test_every_rule_says_what_why_and_fix(tmp_path: Path) -> None:
    broken = f"import flodl_window\nsleep(1)\nx = '{INTERNAL}'\n"
    files = {"tools/utils.py": "\n" * 451, "packages/flodl-cli/tests/test_x.py": broken}
    found = findings(tmp_path, files)
    assert len(found) == 5
    assert all(finding.what and finding.why and finding.fix for finding in found)


def test_the_command_exits_1_on_a_breach_and_0_on_none(tmp_path: Path) -> None:
    findings(tmp_path, {"tools/utils.py": ""})
    command = [sys.executable, "-m", "tools.check", str(tmp_path)]
    bad = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (bad.returncode, "tools/utils.py:1:" in bad.stdout) == (1, True)
    (tmp_path / "tools/utils.py").unlink()
    good = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (good.returncode, good.stdout) == (0, f"tools/check.py: {len(RULES)} rules hold\n")

"""Builds that work, and those that fail in each of their ways."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from publish_worlds import write

from flodl_publish import building, byte_compile, child, recipe
from flodl_publish.building import Work
from flodl_wire.faults import Refused, Transient
from flodl_wire.libtorch import Variant


def build(
    root: Path,
    line: str = "",
    program: str = "t.py",
    cwd: str = "",
    others: tuple[str, ...] = (),
    variant: Variant | None = None,
) -> building.Built:
    return building.build(Work(root, cwd, line, program, root / ".state"), variant, lambda _: None, others)


def test_nothing_to_build_is_a_check_of_the_program(tmp_path: Path) -> None:
    write(tmp_path, {"t.py": "import a\n", "a.py": "x = 1\n", "bad.py": "(", "more.py": ""})
    built = build(tmp_path, others=("t.py", "a.py", "bad.py", "more.py"))
    assert built.recipe == "nothing to build"
    assert built.toolchain.startswith("Python 3")
    assert [w.partition(" (")[0] for w in built.warnings] == ["bad.py does not compile"]
    assert not list(tmp_path.rglob("__pycache__"))


def test_an_imported_file_that_cannot_compile_fails_by_file_and_line(tmp_path: Path) -> None:
    write(tmp_path, {"t.py": "import a\n", "a.py": "x = 1\ny = (\n"})
    with pytest.raises(Transient) as caught:
        build(tmp_path)
    assert "a.py (imported by t.py)" in caught.value.what
    assert "line 2" in caught.value.why


def test_the_recipe_runs_in_the_project_with_its_environment(tmp_path: Path) -> None:
    write(tmp_path, {"p/t.py": ""})
    build(tmp_path, 'echo "$PWD|$FDL_GPU_FEATURE|$TORCH_EXTENSIONS_DIR" > out', cwd="p")
    assert (tmp_path / "p/out").read_text() == f"{tmp_path}/p||{tmp_path}/.state/extensions\n"


def test_a_recipe_that_fails_keeps_its_last_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Transient) as caught:
        build(tmp_path, "for i in $(seq 30); do echo line $i; done; echo '\x1b[31mred' >&2; exit 3")
    assert "exit 3" in caught.value.why
    assert "line 30" in caught.value.why
    assert "line 10\n" not in caught.value.why
    shown = capfd.readouterr().err
    assert "  | line 1\n" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("said", "install"),
    [
        ("x.cpp:1:10: fatal error: cuda_runtime.h: No such file or directory", "nvidia-cuda-toolkit"),
        ("x.cpp:1:10: fatal error: 'hip/hip_runtime.h' file not found", "hip-dev"),
        ("x.c:1:10: fatal error: Python.h: No such file or directory", "python3-dev"),
        ("x.c:1:10: fatal error: nccl.h: No such file or directory", "libnccl-dev"),
    ],
)
def test_missing_headers_are_permanent_and_name_their_package(tmp_path: Path, said: str, install: str) -> None:
    with pytest.raises(Refused) as caught:
        build(tmp_path, f'echo "{said}"; exit 1')
    assert (caught.value.code, install in caught.value.fix) == ("missing-headers", True)


def test_a_header_of_ones_own_that_is_missing_is_an_ordinary_failure(tmp_path: Path) -> None:
    with pytest.raises(Transient):
        build(tmp_path, 'echo "x.c:1:1: fatal error: mine.h: No such file or directory"; exit 1')


def test_a_program_that_the_build_did_not_make_is_permanent(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        build(tmp_path, "true", program="target/release/x")
    assert (caught.value.code, "did not make it" in caught.value.why) == ("no-bin", True)
    write(tmp_path, {"x": ""})
    with pytest.raises(Refused, match="not executable"):
        build(tmp_path, program="x")


def test_the_environment_of_the_recipe_compiles_the_program(tmp_path: Path) -> None:
    write(tmp_path, {"t.py": "("})
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (flaw,) = byte_compile.flaws(python, tmp_path, ["t.py"])
    assert (flaw.path, flaw.line) == ("t.py", 1)


def test_a_line_without_end_does_not_fill_memory(tmp_path: Path) -> None:
    ended = child.run(["/bin/sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; exit 2"], cwd=tmp_path, env=os.environ)
    assert ended.code == 2
    assert max(map(len, ended.tail)) <= 1 << 16


def test_what_a_program_leaves_running_does_not_hold_its_caller(tmp_path: Path) -> None:
    ended = child.run(["/bin/sh", "-c", "echo a; sleep 1000 & exit 3"], cwd=tmp_path, env=os.environ)
    assert (ended.code, ended.tail) == (3, ["a"])


def test_uv_makes_the_environment_of_the_project_also_in_a_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    project = '[project]\nname = "{0}"\nversion = "1"\nrequires-python = ">=3.10"\n[tool.uv]\npackage = false\n'
    write(
        tmp_path,
        {
            "pyproject.toml": '[tool.uv.workspace]\nmembers = ["app", "lib"]\n',
            "app/pyproject.toml": project.format("app") + "[tool.uv.sources]\nlib = { workspace = true }\n",
            "lib/pyproject.toml": project.format("lib"),
            "app/t.py": "",
        },
    )
    built = build(tmp_path, cwd="app")
    assert built.recipe == "uv sync"
    assert (tmp_path / "app/.venv/bin/python").exists()
    assert built.toolchain.startswith("Python 3")


def test_requirements_make_an_environment_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a variant it holds torch already, and pip, which could not get one here, asks for none."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_FIND_LINKS", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    write(tmp_path, {"requirements.txt": "torch\n", "t.py": ""})
    info = "site/torch-9.dist-info"
    described = {f"{info}/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 9\n", f"{info}/INSTALLER": "pip"}
    write(tmp_path / "v", {**described, "lib/x": "", "site/torch/__init__.py": ""})
    built = build(tmp_path, variant=Variant("precompiled/cpu", tmp_path / "v"))
    assert built.recipe == "a .venv from requirements.txt"
    imported = [str(tmp_path / ".venv/bin/python"), "-c", "import torch; print(torch.__file__)"]
    assert str(tmp_path / "v/site") in subprocess.run(imported, capture_output=True, text=True, check=True).stdout
    assert (tmp_path / ".venv/bin/python").exists()
    assert len(list(recipe.steps(recipe.Recipe("requirements"), tmp_path, None))) == 1

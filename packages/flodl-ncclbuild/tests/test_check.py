"""Libraries that are a libnccl, that are not, and that should not be loaded; compiled where there is a C compiler."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ncclbuild_box import needs_compiler

from flodl_ncclbuild import library, main
from flodl_wire.faults import Refused


def compiled(folder: Path, source: str) -> Path:
    path = folder / "libnccl.so.2"
    (folder / "nccl.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, folder / "nccl.c"], check=True)
    return path


@pytest.mark.parametrize(
    ("number", "version"),
    [(22705, (2, 27, 5)), (21003, (2, 10, 3)), (2804, (2, 8, 4)), (2708, (2, 7, 8)), (30102, (3, 1, 2))],
)
def test_nccls_integer_is_a_version(number: int, version: tuple[int, int, int]) -> None:
    assert library.split(number) == version


@needs_compiler
def test_a_libnccl_tells_its_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = compiled(tmp_path, "int ncclGetVersion(int *v) { *v = 22705; return 0; }")
    assert main.main(["check", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: NCCL 2.27.5\nfor no GPU: it holds no device code")
    assert main.main(["check", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "2.27.5"


@needs_compiler
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("int other(void) { return 0; }", "no libnccl"),
        ("int ncclGetVersion(int *v) { return 3; }", "code 3"),
        ("int ncclGetVersion(int *v) { *(volatile int *)0 = 1; return 0; }", "signal 11"),
        ("int missing(void); int ncclGetVersion(int *v) { return missing(); }", "undefined symbol"),
    ],
)
def test_a_library_that_is_no_use_is_refused_in_words(tmp_path: Path, source: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        library.version_of(compiled(tmp_path, source))


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_text("words")
    with pytest.raises(Refused, match=r"file too short|invalid ELF header"):
        library.version_of(tmp_path / "x.so")
    with pytest.raises(Refused, match="no such file"):
        library.version_of(tmp_path / "none.so")
    with pytest.raises(Refused, match="no such file"):
        library.version_of(tmp_path)


def test_the_executable_says_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bulid"]) == 2
    assert "one of build, list, check" in capsys.readouterr().err
    assert main.main([]) == 2
    tool = Path(sys.executable).parent / "flodl-ncclbuild"
    assert subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.startswith(
        "flodl-nccl"
    )
    assert "check" in subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout

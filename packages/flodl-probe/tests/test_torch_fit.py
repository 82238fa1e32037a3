"""A wheel by its metadata, a libtorch variant by its folder, and whether they run here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_probe.checks.nccl import check_nccl
from flodl_probe.checks.torch_fit import archs_match, check_arch, check_libtorch, check_torch
from flodl_probe.facts import Box, Driver, Facts, Gpu, Libtorch, NcclLibrary, TorchBuild
from flodl_probe.question import Question
from flodl_probe.reading import libtorch_variant, torch_build
from flodl_wire.arch_tokens import runs, tokens


def wheel(
    site: Path, version: str = "2.13.0+cu128", cuda: str = "'12.8'", archs: bytes = b"sm_80 sm_90 compute_90"
) -> Path:
    info = site / f"torch-{version}.dist-info"
    info.mkdir(parents=True)
    (site / "torch/lib").mkdir(parents=True)
    (site / "torch/version.py").write_text(
        f"from typing import Optional\n__version__ = '{version}'\n"
        f"cuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n"
    )
    (info / "METADATA").write_text(
        f"Name: torch\nVersion: {version}\nRequires-Dist: filelock\n"
        'Requires-Dist: nvidia-nccl-cu12==2.27.5; platform_system == "Linux"\n'
    )
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_28_x86_64\n")
    (site / "torch/lib/libtorch_python.so").write_bytes(b"\x7fELF" + b"x\0" * 999 + b"\0sm_9\0" + archs + b"\0tail")
    return site


def test_a_wheel_is_read_from_its_files(tmp_path: Path) -> None:
    found = torch_build.read(wheel(tmp_path))
    assert found is not None
    assert (found.version, found.cuda, found.nccl, found.python_tag, found.glibc) == (
        "2.13.0+cu128",
        "12.8",
        "2.27.5",
        "cp311",
        "2.28",
    )
    assert found.archs == ["sm_80", "sm_90", "compute_90"]


def test_the_project_s_own_environment_comes_first(tmp_path: Path) -> None:
    site = wheel(tmp_path / ".venv/lib/python3.11/site-packages", "9.9.9")
    (tmp_path / ".venv/bin").mkdir()
    (tmp_path / ".venv/bin/python").touch()
    found = torch_build.find(tmp_path)
    assert found is not None and (found.version, found.site) == ("9.9.9", str(site))


def test_damaged_metadata_leaves_gaps_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_bytes(b"\xff\xfe nonsense")
    found = torch_build.read(tmp_path)
    assert found is not None and (found.version, found.archs, found.glibc) == ("", None, None)
    assert torch_build.read(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("arch", "compiled", "how"),
    [
        ("sm90", "sm_80 sm_90", "native"),
        ("sm86", "sm_80", "native"),  # a later minor of the same major
        ("sm80", "sm_86", ""),
        ("sm90", "sm_80", ""),
        ("sm120", "sm_90 compute_90", "jit"),
        ("sm100", "sm_10", ""),  # tokens, not beginnings
        ("sm90", "sm_90a", "native"),
        ("sm100", "sm_90a compute_90a", ""),
        ("gfx942", "gfx90a gfx942", "native"),
        ("gfx94", "gfx942", ""),
        ("gfx1036", "gfx1030", ""),
    ],
)
def test_which_code_runs_on_which_card(arch: str, compiled: str, how: str) -> None:
    assert runs(arch, compiled.split()) == how


def test_lists_of_archs_are_read_as_they_are_written() -> None:
    assert tokens("6.1;12.0+PTX") == ["sm_61", "sm_120", "compute_120"]
    assert tokens(" sm61, gfx942 ") == ["sm61", "gfx942"]
    assert runs("sm61", tokens("6.1;12.0")) == runs("sm61", tokens("sm61")) == "native"


@given(st.text())
def test_no_text_upsets_the_arch_reader(text: str) -> None:
    assert runs("sm90", tokens(text)) in ("native", "jit", "")
    assert runs(text, tokens("sm_90 compute_90")) in ("native", "jit", "")


def gpu_box(torch: TorchBuild | None, driver: Driver | None = None, arch: str = "sm90") -> Facts:
    return Facts(
        Question(),
        "here",
        gpus=[Gpu(0, name="Card", arch=arch)],
        torch=torch,
        driver=driver or Driver("550", "12.8", 1),
    )


@pytest.mark.parametrize(
    ("compiled", "driver", "level"),
    [
        (["sm_90"], "12.4", "ok"),
        (["sm_80"], "12.8", "error"),
        (["compute_80"], "12.8", "warning"),
        (["compute_80"], "12.4", "error"),  # nothing that could compile it
    ],
)
def test_a_card_without_code_of_its_own_is_found(compiled: list[str], driver: str, level: str) -> None:
    box = gpu_box(TorchBuild("2.13.0", "/s", cuda="12.8", archs=compiled), Driver("550", driver, 1))
    assert [found.level for found in check_arch(box)] == [level]
    assert archs_match(box) is (compiled != ["sm_80"])


def test_an_old_driver_and_an_old_system_are_errors() -> None:
    found = check_torch(gpu_box(TorchBuild("2.13.0", "/s", cuda="13.0", glibc="2.28"), Driver("550", "12.8", 1)))
    assert [(one.check, one.level) for one in found] == [("driver", "error")]
    old = Facts(Question(devices="cpu:1"), torch=TorchBuild("2.13.0", "/s", glibc="2.28"), box=Box(glibc="2.17"))
    assert "needs glibc 2.28, this system has 2.17" in check_torch(old)[0].why


def test_no_torch_is_a_warning_because_a_rank_may_do_without() -> None:
    assert check_torch(Facts())[0].level == "warning"
    assert check_torch(Facts(Question(docker="cuda"))) == []


def variant(root: Path, name: str = "precompiled/cu128") -> Path:
    folder = root / "libtorch" / name
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/libtorch.so").touch()
    (folder / ".arch").write_text("torch=2.13.0\npython: cp311\n# a remark = no\narchs=8.0;9.0\n")
    return folder


def test_a_variant_is_found_by_flag_by_arch_by_the_project_and_by_the_user(tmp_path: Path) -> None:
    project, home = tmp_path / "p", tmp_path / "h"
    ours, theirs = variant(project), variant(home / ".flodl", "precompiled/cpu")
    (home / ".flodl/libtorch/.active").write_text("precompiled/cpu\n")

    def find(given: str | None = None, arch: str | None = None) -> Libtorch:
        found = libtorch_variant.find(given, arch, project, home)
        assert found is not None
        return found

    assert find().path == str(theirs)
    (project / "libtorch/.active").write_text("precompiled/cu128\n")
    assert find().path == find(arch="precompiled/cu128").path == str(ours)
    assert find(arch="precompiled/cpu").path == str(theirs)
    for chosen in (ours, project / "libtorch", project / "libtorch/.active"):
        assert find(str(chosen)).valid_dir, chosen
    assert find().info == {"torch": "2.13.0", "python": "cp311", "archs": "8.0;9.0"}
    assert libtorch_variant.find(None, None, None, tmp_path) is None
    (home / f".flodl/libtorch/.active.{os.uname().nodename}").write_text("precompiled/cpu")
    (project / f"libtorch/.active.{os.uname().nodename}").write_text("precompiled/gone")
    assert find().why.endswith("names it, and it is not there"), "this host's own pointer goes ahead"


def test_each_way_in_which_a_variant_is_none_is_said(tmp_path: Path) -> None:
    folder = variant(tmp_path)
    for prepare, words in (
        (lambda: (folder / "lib/libtorch.so").unlink(), "no libtorch"),
        (lambda: (folder / "lib").rmdir(), "no lib/"),
        (lambda: (tmp_path / "libtorch/.active").write_text("builds/gone"), "not there"),
        (lambda: (tmp_path / "libtorch/.active").write_text(""), "names no variant"),
    ):
        prepare()
        given = str(tmp_path / "libtorch") if (tmp_path / "libtorch/.active").exists() else str(folder)
        found = libtorch_variant.find(given, None, None, tmp_path)
        assert found is not None and not found.valid_dir and words in found.why
        assert check_libtorch(Facts(libtorch=found))[0].level == "error"


def test_a_variant_for_another_python_is_refused() -> None:
    chosen = Libtorch("/l", {"python": "cp310"}, valid_dir=True)
    box = Facts(
        box=Box(python="3.11.7"), libtorch=chosen, torch=TorchBuild("2", "/l/site", "libtorch", python_tag="cp310")
    )
    assert check_libtorch(box)[0].level == "error"
    chosen.info = {"python": "cp311"}
    assert check_libtorch(box)[0].level == "ok"


def test_the_nccl_that_is_loaded_is_compared_with_what_torch_was_built_with() -> None:
    box = gpu_box(TorchBuild("2.13.0", "/s", cuda="12.8", nccl="2.27.5"))
    box.nccl = [
        NcclLibrary("/x/libnccl.so.2", "LD_PRELOAD", "2.28.9"),
        NcclLibrary("/s/libnccl.so.2", "torch", "2.27.5"),
    ]
    found = check_nccl(box)[0]
    assert found.level == "warning" and "2.28.9" in found.what and "2.27.5" in found.why
    box.nccl = box.nccl[1:]
    assert check_nccl(box)[0].level == "ok"
    box.nccl = []
    assert check_nccl(box)[0].level == "error"
    box.nccl = [NcclLibrary("/x/libnccl.so.2", "LD_PRELOAD", None, "there is no such file")]
    assert "fdl nccl build" in check_nccl(box)[0].fix


def test_nccl_is_nobody_s_business_without_nvidia_and_in_an_image() -> None:
    assert check_nccl(Facts(Question(devices="cpu:1"))) == []
    box = gpu_box(TorchBuild("2.13.0", "/s", cuda="12.8", nccl="2.27.5"))
    box.asked.docker = "cuda"
    assert check_nccl(box) == []

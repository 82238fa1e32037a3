"""Which NCCL the active torch asks for, in trees as pip leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncclbuild_box import Box, libnccl, needs_compiler, torch_in

from flodl_ncclbuild import torch_nccl
from flodl_wire.faults import Refused

REQUIREMENT = 'nvidia-nccl-cu12==2.27.3; platform_system == "Linux" and platform_machine == "x86_64"'


@pytest.fixture(autouse=True)
def nothing_else(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python's own environment holds no torch, and HOME no variant."""
    monkeypatch.setenv("HOME", str(box.home))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(box.home / "own"))


def variant(box: Box, name: str = "precompiled/cu128", base: Path | None = None) -> Path:
    base = base or box.project / "libtorch"
    (base / name).mkdir(parents=True)
    (base / ".active").write_text(name + "\n")
    return base / name


def test_the_wheel_of_the_active_variant_says_it(box: Box) -> None:
    torch_in(variant(box) / "site", version="2.8.0+cu128", cuda="12.8", requires=("sympy", REQUIREMENT))
    found = torch_nccl.asked(box.project)
    assert (str(found.version), found.cuda) == ("2.27.3", "12.8")
    assert "torch 2.8.0+cu128" in found.origin
    assert "nvidia-nccl-cu12==2.27.3" in found.origin


def test_a_variant_of_the_users_home_serves_a_project_without_one(box: Box) -> None:
    home = variant(box, base=box.home / ".flodl" / "libtorch")
    torch_in(home / "site", version="2.9.1", cuda="13.0", requires=("nvidia-nccl-cu13==2.28.9",))
    assert str(torch_nccl.asked(box.project).version) == "2.28.9"


def test_the_library_that_is_installed_wins_over_the_one_that_was_required(box: Box) -> None:
    site = variant(box) / "site"
    torch_in(site, version="2.8.0", cuda="12.8", requires=(REQUIREMENT,))
    box.site(site, nvidia_nccl_cu12="2.27.5")
    found = torch_nccl.asked(box.project)
    assert str(found.version) == "2.27.5"
    assert "2.27.5 is installed" in found.origin


def test_the_environment_of_the_project_comes_before_our_own(box: Box) -> None:
    torch_in(box.home / "own", version="2.6.0", cuda="12.4", requires=("nvidia-nccl-cu12 (==2.21.5)",))
    assert str(torch_nccl.asked(box.project).version) == "2.21.5"
    site = box.project / ".venv" / "lib" / "python3.12" / "site-packages"
    torch_in(site, version="2.8.0", cuda="12.8", requires=(REQUIREMENT,))
    assert str(torch_nccl.asked(box.project).version) == "2.27.3"


@needs_compiler
def test_a_torch_that_is_no_wheel_lets_its_library_speak(box: Box) -> None:
    made = variant(box, "builds/sm61-sm120")
    torch_in(made / "site", version="2.8.0", cuda="12.8.1")
    libnccl(made / "lib" / "libnccl.so.2", 22605)
    found = torch_nccl.asked(box.project)
    assert (str(found.version), found.cuda) == ("2.26.5", "12.8")
    assert "says so itself" in found.origin


@pytest.mark.parametrize(
    ("cuda", "hip", "why"),
    [(None, None, "needs no NCCL, built without CUDA"), ("12.8", None, "needs no NCCL"), (None, "6.4", "RCCL")],
)
def test_a_torch_without_nccl_is_named_with_the_flag(box: Box, cuda: str | None, hip: str | None, why: str) -> None:
    torch_in(variant(box) / "site", version="2.8.0", cuda=cuda, hip=hip)
    with pytest.raises(Refused, match=why) as caught:
        torch_nccl.asked(box.project)
    assert "precompiled/cu128" in caught.value.why
    assert "--tag" in caught.value.fix


def test_no_torch_at_all_names_where_it_was_looked_for(box: Box) -> None:
    with pytest.raises(Refused, match="holds no torch") as caught:
        torch_nccl.asked(box.project)
    assert "--tag v2.27.5" in caught.value.fix


@pytest.mark.parametrize("text", ["precompiled/none", "../elsewhere", "/nowhere"])
def test_a_pointer_to_a_variant_that_is_not_there_is_refused(box: Box, text: str) -> None:
    (box.project / "libtorch").mkdir()
    (box.project / "libtorch" / ".active").write_text(text)
    with pytest.raises(Refused, match="there is no variant"):
        torch_nccl.asked(box.project)

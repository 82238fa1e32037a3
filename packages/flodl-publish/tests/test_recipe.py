"""Which recipe a tree implies, and what it is told of the libtorch variant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from publish_worlds import write

from flodl_publish import libtorch, recipe
from flodl_wire.faults import Refused
from flodl_wire.libtorch import Variant, named


@pytest.mark.parametrize(
    ("files", "stated", "kind"),
    [
        ({"uv.lock": "", "Cargo.toml": ""}, "", "uv"),
        ({"pyproject.toml": '[project]\nname = "x"'}, "", "uv"),
        ({"pyproject.toml": "[tool.ruff]", "requirements.txt": ""}, "", "requirements"),
        ({"Cargo.toml": ""}, "", "cargo"),
        ({"pyproject.toml": "[tool.ruff]"}, "", "nothing"),
        ({}, "", "nothing"),
        ({"uv.lock": ""}, "make", "shell"),
    ],
)
def test_a_recipe_is_stated_or_implied(tmp_path: Path, files: dict[str, str], stated: str, kind: str) -> None:
    write(tmp_path, files)
    assert recipe.choose(tmp_path, stated).kind == kind


def variant(root: Path, name: str = "precompiled/cu128", arch: str = "cuda=12.8\narchs=sm_61 sm_120\n") -> Variant:
    write(root / "libtorch" / name, {".arch": arch, "lib/libtorch.so": "", "site/torch/version.py": ""})
    return named(name, root)


def test_a_recipe_learns_where_torch_is_and_for_what(tmp_path: Path) -> None:
    made = variant(tmp_path)
    got = libtorch.environment(made, tmp_path / "s", {"LD_LIBRARY_PATH": "/x", "ROCM_PATH": str(tmp_path / "rocm")})
    folder = tmp_path / "libtorch/precompiled/cu128"
    assert got["LIBTORCH_PATH"] == str(folder)
    assert got["FDL_GPU_FEATURE"] == "cuda"
    assert got["LD_LIBRARY_PATH"] == f"{folder}/lib:/x"
    assert got["TORCH_CUDA_ARCH_LIST"] == "6.1;12.0"
    assert got["TORCH_EXTENSIONS_DIR"] == str(tmp_path / "s" / "extensions")
    assert got["PYTHONPATH"] == f"{folder}/site"


def test_the_systems_rocm_goes_ahead_of_the_variants(tmp_path: Path) -> None:
    (tmp_path / "rocm" / "lib").mkdir(parents=True)
    made = variant(tmp_path, "precompiled/rocm70", "")
    got = libtorch.environment(made, tmp_path, {"HIP_PATH": str(tmp_path / "rocm")})
    assert got["LD_LIBRARY_PATH"] == f"{tmp_path}/rocm/lib:{made.folder}/lib"
    assert got["FDL_GPU_FEATURE"] == "rocm"
    assert "TORCH_CUDA_ARCH_LIST" not in got


def test_without_a_variant_it_is_the_cpu_and_the_environments_own_torch(tmp_path: Path) -> None:
    got = libtorch.environment(None, tmp_path, {"TORCH_CUDA_ARCH_LIST": "9.0"})
    assert got["FDL_GPU_FEATURE"] == ""
    assert "LIBTORCH_PATH" not in got


def test_a_users_own_list_of_archs_stays(tmp_path: Path) -> None:
    assert "TORCH_CUDA_ARCH_LIST" not in libtorch.environment(
        variant(tmp_path), tmp_path, {"TORCH_CUDA_ARCH_LIST": "9.0"}
    )


def test_uv_leaves_torch_to_the_variant(tmp_path: Path) -> None:
    write(tmp_path / "p", {"uv.lock": '[[package]]\nname = "nvidia-nccl-cu12"\n[[package]]\nname = "numpy"\n'})
    made = variant(tmp_path)
    (command,) = recipe.steps(recipe.Recipe("uv"), tmp_path / "p", made)
    assert command[1:] == [
        "sync",
        *(w for n in ("nvidia-nccl-cu12", "torch", "triton") for w in ("--no-install-package", n)),
    ]
    assert [command[1:] for command in recipe.steps(recipe.Recipe("uv"), tmp_path / "p", None)] == [["sync"]]
    (tmp_path / "p/uv.lock").unlink()
    words = [command[1] for command in recipe.steps(recipe.Recipe("uv"), tmp_path / "p", made)]
    assert words == ["lock", "sync"], "the lock names what torch would bring along"


def test_the_variant_joins_the_projects_environment_and_leaves_it(tmp_path: Path) -> None:
    site = tmp_path / "p/.venv/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    made = variant(tmp_path)
    recipe.join_variant(tmp_path / "p", made)
    assert (site / "flodl-libtorch.pth").read_text() == f"{made.folder}/site\n"
    recipe.join_variant(tmp_path / "p", None)
    assert not list(site.iterdir())


def test_a_missing_tool_names_its_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused) as caught:
        list(recipe.steps(recipe.Recipe("cargo"), tmp_path, None))
    assert "rustup" in caught.value.fix


def test_a_python_program_runs_with_the_projects_environment_where_there_is_one(tmp_path: Path) -> None:
    assert str(recipe.interpreter(tmp_path)) == sys.executable
    write(tmp_path, {".venv/bin/python": ""})
    assert recipe.interpreter(tmp_path) == tmp_path / ".venv/bin/python"

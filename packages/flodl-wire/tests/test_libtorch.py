"""A libtorch variant: which one holds, and what a process with it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl_wire import environ, libtorch
from flodl_wire.faults import Refused
from flodl_wire.libtorch import Variant


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(environ.HOST_NAME, "this-box")
    return tmp_path / "home"


def variant(root: Path, name: str = "precompiled/cu128", arch: str = "cuda=12.8\narchs=sm_61 sm_120\n") -> Variant:
    folder = root / "libtorch" / name
    for inner in ("lib", "site"):
        (folder / inner).mkdir(parents=True)
    (folder / ".arch").write_text(arch)
    return libtorch.read(name, folder)


def test_the_active_variant_is_the_projects_then_the_users(tmp_path: Path, home: Path) -> None:
    assert libtorch.active(tmp_path) is None
    variant(home / ".flodl", "precompiled/cpu", "")
    (home / ".flodl/libtorch/.active").write_text("precompiled/cpu\n")
    got = libtorch.active(tmp_path)
    assert got is not None and (got.name, got.feature) == ("precompiled/cpu", "")
    variant(tmp_path)
    (tmp_path / "libtorch/.active").write_text("precompiled/cu128")
    got = libtorch.active(tmp_path)
    assert got is not None and got.name == "precompiled/cu128"
    (tmp_path / "libtorch/.active").write_text("precompiled/gone")
    with pytest.raises(Refused, match="not there"):
        libtorch.active(tmp_path)


def test_a_pointer_for_this_host_goes_ahead_of_the_common_one(tmp_path: Path) -> None:
    for name in ("precompiled/cpu", "builds/sm61"):
        variant(tmp_path, name)
    (tmp_path / "libtorch/.active").write_text("precompiled/cpu")
    (tmp_path / "libtorch/.active.this-box").write_text("builds/sm61")
    (tmp_path / "libtorch/.active.other-box").write_text("precompiled/gone")
    got = libtorch.active(tmp_path)
    assert got is not None and got.name == "builds/sm61"


def test_a_variant_goes_by_its_name_its_last_word_or_its_folder(tmp_path: Path) -> None:
    made = variant(tmp_path)
    for name in ("precompiled/cu128", "cu128", str(made.folder)):
        assert libtorch.named(name, tmp_path).folder == made.folder
    assert libtorch.chosen("cu128", tmp_path) == libtorch.named("cu128", tmp_path)
    assert libtorch.named("cu128", tmp_path).name == "precompiled/cu128"


def test_one_that_is_not_here_is_refused_with_those_that_are(tmp_path: Path) -> None:
    variant(tmp_path)
    with pytest.raises(Refused, match=r"there is precompiled/cu128") as caught:
        libtorch.named("precompiled/rocm70", tmp_path)
    assert caught.value.fix == "fdl libtorch download rocm70"


@pytest.mark.parametrize(
    ("arch", "name", "feature", "archs"),
    [
        ("cuda=12.8\narchs=sm_61 sm_120 compute_120\n", "builds/x", "cuda", "6.1;12.0"),
        ("cuda: 12.8\narchs: 6.1;12.0", "builds/x", "cuda", "6.1;12.0"),
        ("cuda=none", "precompiled/cpu", "", ""),
        ("", "precompiled/rocm70", "rocm", ""),
        ("", "precompiled/cu128", "cuda", ""),
        ("", "builds/sm61-sm120", "cuda", ""),
    ],
)
def test_what_it_is_for_comes_from_its_metadata_else_from_its_name(
    tmp_path: Path, arch: str, name: str, feature: str, archs: str
) -> None:
    made = variant(tmp_path, name, arch)
    assert (made.feature, made.cuda_archs) == (feature, archs)


def test_a_process_that_uses_it_finds_it_first_and_what_was_there_behind(tmp_path: Path) -> None:
    made = variant(tmp_path)
    (tmp_path / "rocm/lib").mkdir(parents=True)
    got = libtorch.environment(made, {"PYTHONPATH": "/mine", "LD_LIBRARY_PATH": "/x::/y"})
    assert got == {"PYTHONPATH": f"{made.site}:/mine", "LD_LIBRARY_PATH": f"{made.folder}/lib:/x:/y"}
    got = libtorch.environment(made, {"HIP_PATH": str(tmp_path / "rocm")})
    assert got["LD_LIBRARY_PATH"] == f"{tmp_path}/rocm/lib:{made.folder}/lib", "the runtime that fits the driver"
    assert libtorch.environment(None, {"PYTHONPATH": "/mine"}) == {}


def test_one_for_another_python_is_refused(tmp_path: Path) -> None:
    made = variant(tmp_path, arch="python=cp39\n")
    with pytest.raises(Refused, match="it is for cp39, and the Python that would import it is cp311"):
        made.check_python("3.11.7")
    variant(tmp_path, "precompiled/none", "").check_python()

"""The environment names: reserved ones, valid ones, and their page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flodl_wire import environ

PAGE = Path(__file__).resolve().parents[3] / "docs" / "env.md"
NAMES = {value for key, value in vars(environ).items() if isinstance(value, str) and key.isupper()} - {
    environ.INTERNAL_PREFIX
}


@pytest.mark.parametrize(
    "name",
    [
        environ.CLUSTER_JSON,
        environ.INTERNAL_PREFIX + "OF_NEXT_YEAR",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "FLODL_HOST_NAME",
        "FDL_ENV",
    ],
)
def test_what_flodl_sets_for_each_rank_is_reserved(name: str) -> None:
    assert environ.is_reserved(name)


@pytest.mark.parametrize("name", ["FLODL_VERBOSITY", "FLODL_DATA_PATH", "NCCL_DEBUG", "LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_what_a_user_may_tune_is_not(name: str) -> None:
    assert not environ.is_reserved(name)


@pytest.mark.parametrize(("name", "valid"), [("A", True), ("_a1", True), ("1A", False), ("", False), ("A\n", False)])
def test_a_name_is_what_a_shell_takes(name: str, valid: bool) -> None:
    assert environ.is_valid_name(name) is valid


def test_the_page_and_the_module_name_the_same_variables() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(NAMES | set(environ.VISIBILITY_MASKS))


def test_role_variables_are_internal() -> None:
    assert all(name.startswith(environ.INTERNAL_PREFIX) for name in environ.ROLE_VARIABLES)

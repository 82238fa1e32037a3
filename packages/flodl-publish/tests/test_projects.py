"""What a project is built with, inside the source and outside of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from publish_worlds import write

from flodl_publish.projects import needed
from flodl_wire.faults import Refused

MEMBER = '[project]\nname = "m"\nversion = "1"\n'


def test_members_of_a_workspace_and_path_dependencies_are_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pyproject.toml": '[tool.uv.workspace]\nmembers = ["packages/*"]\nexclude = ["packages/old"]\n',
            "packages/a/pyproject.toml": MEMBER
            + '[tool.uv.sources]\nb = { workspace = true }\nc = { path = "../../c" }\n',
            "packages/b/pyproject.toml": MEMBER,
            "packages/old/pyproject.toml": MEMBER,
            "c/pyproject.toml": MEMBER + '[tool.uv.sources]\nd = [{ path = "../d" }]\n',
            "d/x": "",
        },
    )
    assert set(needed(tmp_path, "packages/a")) == {".", "packages/a", "packages/b", "c", "d"}


def test_requirements_lead_to_further_files_and_folders(tmp_path: Path) -> None:
    write(tmp_path, {"p/requirements.txt": "-r sub/more.txt  # x\nnumpy>=1\n-e ../lib\nx @ file://./y\n-c con.txt\n"})
    write(tmp_path, {"p/sub/more.txt": "torch\n./wheel.whl\n", "p/con.txt": ""})
    assert set(needed(tmp_path, "p")) == {"p/sub/more.txt", "lib", "p/y", "p/con.txt", "p/sub/wheel.whl"}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("p/pyproject.toml", '[tool.uv.sources]\nx = { path = "../../out" }\n'),
        ("p/pyproject.toml", '[tool.uv.sources]\nx = { path = "/srv/out" }\n'),
        ("p/pyproject.toml", '[project]\ndependencies = ["x @ file:///srv/out"]\n'),
        ("p/pyproject.toml", "[tool.uv.sources]\nx = { workspace = true }\n"),
        ("p/pyproject.toml", '[tool.poetry.dependencies]\nx = { path = "../../out" }\n'),
        ("p/requirements.txt", "-e ../../out\n"),
        ("p/requirements.txt", "-r ../../out.txt\n"),
        ("p/Cargo.toml", '[dependencies]\nx = { path = "../../out" }\n'),
    ],
)
def test_what_lies_outside_is_refused_by_the_file_that_names_it(tmp_path: Path, file: str, text: str) -> None:
    write(tmp_path, {file: text})
    with pytest.raises(Refused) as caught:
        needed(tmp_path, "p")
    assert caught.value.code == "outside-source"
    assert file in caught.value.why


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "["})
    with pytest.raises(Refused, match=r"pyproject\.toml"):
        needed(tmp_path, "")

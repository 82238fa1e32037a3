"""What was built for this host before the run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flodl_agent import site
from flodl_wire.faults import Refused
from flodl_wire.specs import AgentSpec, Site

OWN = "{}.{}".format(*sys.version_info[:2])


def spec(folder: Path, **more: object) -> AgentSpec:
    return AgentSpec("node-b", "c", 1, path=str(folder), site=Site("target/site", **more))  # type: ignore[arg-type]


def test_the_folder_is_found_where_this_host_mounts_the_project(tmp_path: Path) -> None:
    (tmp_path / "target/site").mkdir(parents=True)
    assert site.of(spec(tmp_path, python=OWN)) == str(tmp_path / "target/site")
    assert site.of(spec(tmp_path)) == str(tmp_path / "target/site")
    assert site.note(spec(tmp_path)) == ""
    assert site.of(AgentSpec("node-b", "c", 1)) == ""


def test_a_host_that_does_not_see_it_goes_on_unless_the_project_asked_for_the_build(tmp_path: Path) -> None:
    assert site.of(spec(tmp_path, python="2.7")) == ""
    assert "going on with what is installed" in site.note(spec(tmp_path))
    assert site.note(AgentSpec("node-b", "c", 1)) == ""
    with pytest.raises(Refused, match="does not see what was built for it") as caught:
        site.of(spec(tmp_path, required=True))
    assert "share the project's folder" in caught.value.fix


def test_a_build_for_another_python_is_refused_with_both_versions(tmp_path: Path) -> None:
    (tmp_path / "target/site").mkdir(parents=True)
    with pytest.raises(Refused, match=r"its Python is 3\.\d+, and .* was built for 2\.7"):
        site.of(spec(tmp_path, python="2.7"))

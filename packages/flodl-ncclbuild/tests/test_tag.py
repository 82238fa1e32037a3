"""NCCL's versions in the four spellings they come in."""

from __future__ import annotations

import pytest

from flodl_ncclbuild import tag
from flodl_wire.faults import Refused


@pytest.mark.parametrize(
    ("text", "version", "git_tag"),
    [
        ("v2.27.5", "2.27.5", "v2.27.5-1"),
        ("2.27.5", "2.27.5", "v2.27.5-1"),
        ("v2.27.5-1", "2.27.5", "v2.27.5-1"),
        ("v2.18.3-2", "2.18.3", "v2.18.3-2"),
    ],
)
def test_a_tag_names_a_release_and_its_revision(text: str, version: str, git_tag: str) -> None:
    made, name = tag.parse(text)
    assert (str(made), name) == (version, git_tag)


@pytest.mark.parametrize("text", ["master", "v2.27", "", "v2.27.5-rc1", "--upload-pack=x", "2.27.5 ; rm"])
def test_what_is_no_release_is_a_usage_error(text: str) -> None:
    with pytest.raises(Refused) as caught:
        tag.parse(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.27.3", "2.27.3"), ("2.26.2.post1", "2.26.2"), ("2.21.5+cu12", "2.21.5"), ("2.27.*", None), ("x", None)],
)
def test_a_wheel_has_the_version_of_its_release(text: str, version: str | None) -> None:
    made = tag.from_wheel(text)
    assert (str(made) if made else None) == version


def test_a_tree_says_its_version() -> None:
    words = "NCCL_MAJOR   := 2\nNCCL_MINOR   := 28\nNCCL_PATCH   := 9\nNCCL_SUFFIX  :=\nPKG_REVISION := 1\n"
    made, git_tag = tag.from_tree(words, "/tree")
    assert (str(made), git_tag) == ("2.28.9", "v2.28.9-1")
    with pytest.raises(Refused, match="states no version"):
        tag.from_tree("all: ;", "/tree")

"""docs/publishing.md: its blocks are taken as they stand, its guarded key is the one that the fleet's tests hold."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from integration.fleet import guard

from flodl_wire.config import parse_cluster
from flodl_wire.join_block import parse_join

PAGE = (Path(__file__).parent.parent / "docs" / "publishing.md").read_text(encoding="utf-8")


def test_the_blocks_of_the_page_are_taken_as_they_stand() -> None:
    standing, farm, worker, data = [
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    ]
    assert standing["commands"]["train"]["run"].split()[2:] == standing["publish"]["args"]
    assert parse_cluster(farm["cluster"]).controller.join is not None
    assert parse_join(worker["join"]).source is not None
    assert parse_join(data["join"]).data_source is not None


def test_the_key_of_the_page_is_the_key_of_the_tests() -> None:
    assert f"\n{guard('/home/op/.flodl/run')} ssh-ed25519" in PAGE

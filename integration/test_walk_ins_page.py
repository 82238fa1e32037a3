"""docs/walk-ins.md to the letter: its blocks are taken as they stand, its guarded key is the one that is tried."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import yaml
from integration.walk_in import guard

from flodl_wire.config import parse_cluster
from flodl_wire.join_block import parse_join

PAGE = (Path(__file__).parent.parent / "docs" / "walk-ins.md").read_text(encoding="utf-8")


def test_the_blocks_of_the_page_are_taken_as_they_stand() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    window, join = blocks
    assert parse_cluster(window["cluster"]).controller.join is not None
    assert parse_join(join["join"]).persist


def test_the_key_of_the_page_is_the_key_of_the_tests() -> None:
    assert f"\n{guard(1337)} ssh-ed25519" in PAGE


def test_the_recipe_stops_at_2_and_never_at_a_fast_series_of_restarts() -> None:
    (text,) = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    unit = configparser.ConfigParser(comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    service = unit["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"], service["KillMode"]) == ("always", "2", "mixed")
    assert (unit["Unit"]["FailureAction"], unit["Unit"]["StartLimitIntervalSec"]) == ("poweroff", "0")
    assert service["ExecStart"].endswith("fdl join --persist")

"""docs/protocol.md and the code say the same: every message has its row, every rule a number and what shows it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from vectors_folder import VECTORS

from flodl_wire import frames, hub_messages, join_messages, noise, plane_messages, preface

ROOT = VECTORS.parents[1]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
RULES = re.findall(r"^- \*\*([A-Z]-\d+)\.\*\* (.*(?:\n  .*)*)", PAGE, re.MULTILINE)


def rows(heading: str) -> list[str]:
    """The first column of the message tables of a chapter."""
    chapter = PAGE.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([a-z_]+)` \|", chapter, re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "unions"),
    [
        ("J: ", (join_messages.JoinUp, join_messages.JoinDown)),
        ("P: ", (hub_messages.ToHub, hub_messages.FromHub)),
        (
            "C: ",
            (plane_messages.RankUp, plane_messages.RankDown, plane_messages.RelayUp, plane_messages.RelayDown),
        ),
    ],
)
def test_every_message_has_one_row_and_every_row_a_message(heading: str, unions: tuple[Any, ...]) -> None:
    tags = {member.__struct_config__.tag for union in unions for member in union.__args__}
    listed = rows(heading)
    assert len(listed) == len(set(listed))
    assert set(listed) == tags


def test_every_rule_has_a_number_of_its_own_in_ascending_order() -> None:
    assert len(RULES) > 50
    assert not [number for number, times in Counter(number for number, _ in RULES).items() if times > 1]
    for letter in {number[0] for number, _ in RULES}:
        numbers = [int(number[2:]) for number, _ in RULES if number[0] == letter]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize(("number", "text"), RULES, ids=[number for number, _ in RULES])
def test_every_rule_names_what_shows_it(number: str, text: str) -> None:
    shown = re.findall(r"`([a-z_/-]+\.(?:json|py))`", text.rpartition("[")[2])
    assert shown, number
    for name in shown:
        where = "docs/vectors" if name.endswith(".json") else "packages/*/tests/**"
        places = [path for path in ROOT.glob(f"{where}/{Path(name).name}") if path.as_posix().endswith(f"/{name}")]
        assert places, f"{number} is shown by {name}, which is not there"
        assert len(places) == 1, f"{number} is shown by {name}, and there are {len(places)} of that name: say which"


def test_rules_that_the_code_cites_exist() -> None:
    known = {number for number, _ in RULES}
    for path in (ROOT / "packages").glob("*/src/**/*.py"):
        cited = set(re.findall(r"\b([WNJPCEH]-\d+)\b", path.read_text(encoding="utf-8")))
        assert cited <= known, path


def test_the_figures_on_the_page_are_those_of_the_code() -> None:
    assert f"Version **{preface.VERSION}**" in PAGE
    assert f"1 to {65_535 - noise.TAG:,} bytes" in PAGE
    assert f"After every {noise.REKEY_EVERY:,} records" in PAGE
    assert f"one JSON message, {frames.LIMITS[frames.MESSAGE] >> 20} MiB at most" in PAGE
    assert re.findall(r"^\| (\d+) \| \d{4}-\d\d-\d\d \|", PAGE, re.MULTILINE)[-1] == str(preface.VERSION)

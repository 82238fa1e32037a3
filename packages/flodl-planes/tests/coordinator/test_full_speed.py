"""How long it took until everybody worked at their own pace again is counted, and said where somebody waited for it."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_planes.coordinator.hub_events import CheckpointFound
from flodl_planes.records.cursor import Cursor
from flodl_wire.hub_messages import Notice


def rows(world: Any) -> list[str]:
    return [row["after"] for row in world.rows("full_speed")]


def said(world: Any) -> list[str]:
    return [notice.text for notice in world.told(Notice) if notice.text.startswith("full speed")]


@pytest.mark.parametrize("mode", ["cpu_sync", "cpu_cadence", "cpu_async", "nccl_cadence"])
def test_it_is_counted_from_the_formation_and_after_each_death(paper: Any, mode: str) -> None:
    world = paper({"a": [0, 1], "b": [2]}, samples=2000, mode=mode).load()
    while not rows(world):
        world.step()
    assert (rows(world), said(world)) == (["the world formed"], []), "who has only just begun knows of it"
    assert 0 < world.rows("full_speed")[0]["took_s"] < 1
    world.kill(1)
    world.finish()
    assert rows(world) == ["the world formed", "rank 1 was lost"]
    (line,) = said(world)
    assert line.startswith("full speed 0.") and line.endswith(" s after rank 1 was lost")


def test_a_run_that_goes_on_says_how_long_it_took(paper: Any) -> None:
    world = paper({"here": [0, 1]}, samples=1000, epochs=2, changes={"resume": "auto"})
    stood = Cursor("r0", "cpu_cadence", "checkpoint", 1, 2, [[0, 300]], 0, 1000, 10, 7, 3)
    world.found = CheckpointFound(stood, "x")
    world.load().finish()
    (line,) = said(world)
    assert line.endswith(" s after the world formed")

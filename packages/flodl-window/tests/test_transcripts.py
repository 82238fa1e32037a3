"""Stories of the window (transcripts/), and every cell of its decision against the reference's rule written plainly."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from window_transcript import play, stories
from window_worlds import Driven, cluster, hello

from flodl_window.phases import Phase, Step
from flodl_window.quorum import judge


@pytest.mark.parametrize("path", stories(), ids=lambda path: path.stem)
def test_every_story_ends_as_it_is_told(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert play(text) == text, "python packages/flodl-window/tests/window_transcript.py writes it anew"


def reference(start: str, joined: int, target: int | None, elapsed: float, armed: bool) -> str:
    """Section 2.6 of the reference, in its words; quorum 2, window 300 s, cap 600 s."""
    quorum = joined >= 2
    if armed and start != "auto" and quorum:
        return "formed"
    if target is not None and joined >= target and start != "manual":
        return "formed"
    if elapsed < 300:
        return "open"
    if start != "manual" and quorum:
        return "formed"
    if elapsed < 600:
        return "open"
    return "failed"


CELLS = [
    cell
    for cell in itertools.product(
        ("auto", "manual", "hybrid"), (0, 1, 2, 3, 4), (None, 2, 3), (0, 299.9, 300, 599.9, 600, 900), (False, True)
    )
    if not (cell[0] == "manual" and cell[2] is not None)  # refused before the port opens
]


@pytest.mark.parametrize("start", ["auto", "manual", "hybrid"])
def test_every_cell_of_the_window_decides_as_the_reference_does(start: str) -> None:
    checked = 0
    for mode, joined, target, elapsed, armed in CELLS:
        if mode != start:
            continue
        join: dict[str, Any] = {"min_rank_start": 2, "start": start, "discovery": True, "token": "a" * 32}
        world = Driven(cluster(**join, **({"target_ranks": target} if target else {})), fanout=False, ready=False)
        knobs, ledger = world.run.charter.knobs, world.run.ledger
        for at in range(joined):
            ledger.admit(hello(f"h{at}"), at + 1, "10.0.0.9", 0.0)
        held = start != "auto" and joined >= 2
        for phase in (Phase.STAGING if held else Phase.WAITING, Phase.WAITING if held else Phase.STAGING):
            judged = judge(knobs, ledger, phase, elapsed, armed)
            wanted = reference(start, joined, target, elapsed, armed)
            got = {Step.FORMED: "formed", Step.CAP_REACHED: "failed"}.get(judged.step, "open")  # type: ignore[arg-type]
            assert got == wanted, (mode, joined, target, elapsed, armed, phase)
            if wanted == "open":  # staging exactly while the roster is startable
                lead_on = {Phase.WAITING: Step.QUORUM_HELD, Phase.STAGING: Step.QUORUM_LOST}[phase]
                right = phase is (Phase.STAGING if held else Phase.WAITING)
                assert judged.step is (None if right else lead_on)
            assert judged.why and (judged.fix or wanted != "failed")
            checked += 1
    assert checked == {"auto": 360, "manual": 120, "hybrid": 360}[start]

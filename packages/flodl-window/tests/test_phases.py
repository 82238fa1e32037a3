from __future__ import annotations

from pathlib import Path

import pytest

from flodl_window.phases import FIRST, TABLE, No, Phase, Step, To, after, diagram
from flodl_wire.faults import Refused
from flodl_wire.state import PHASES

DOCS = Path(__file__).parents[3] / "docs" / "phases.md"


def test_every_phase_has_a_cell_for_every_step() -> None:
    assert set(TABLE) == set(Phase)
    for row in TABLE.values():
        assert set(row) == set(Step)


def test_every_cell_says_why() -> None:
    for row in TABLE.values():
        for cell in row.values():
            assert (cell.label if isinstance(cell, To) else cell.why).strip()


def test_the_phases_are_the_words_of_state_json() -> None:
    assert tuple(phase.value for phase in Phase) == PHASES


def test_nothing_leads_out_of_a_verdict() -> None:
    for phase in (Phase.DONE, Phase.FAILED):
        assert all(isinstance(cell, No) for cell in TABLE[phase].values())


def test_every_phase_can_be_reached_and_every_open_one_can_fail() -> None:
    reached = {FIRST} | {cell.phase for row in TABLE.values() for cell in row.values() if isinstance(cell, To)}
    assert reached == set(Phase)
    for phase in Phase:
        if not phase.terminal:
            assert Phase.FAILED in {cell.phase for cell in TABLE[phase].values() if isinstance(cell, To)}


def test_a_step_that_leads_nowhere_is_refused_with_its_reason() -> None:
    with pytest.raises(Refused) as caught:
        after(Phase.FORMING, Step.QUORUM_HELD)
    assert "the window is closed" in str(caught.value)


@pytest.mark.skipif(not DOCS.parent.is_dir(), reason="the package is tested away from its repository")
def test_the_page_holds_the_diagram_of_the_table() -> None:
    assert f"```mermaid\n{diagram()}\n```" in DOCS.read_text(encoding="utf-8"), (
        "docs/phases.md is stale: paste the output of python -m flodl_window.phases"
    )

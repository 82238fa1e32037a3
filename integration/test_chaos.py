"""Fifteen plays of `make chaos`: what must be true after something terrible, whatever it was and whenever it came."""

from __future__ import annotations

from pathlib import Path

from tools.chaos import __main__ as chaos
from tools.chaos.deeds import draw

SEED = 20261130


def test_fifteen_runs_with_something_terrible_in_each_end_as_they_must(tmp_path: Path) -> None:
    played = list(chaos.plays(SEED, list(range(15)), tmp_path))
    wrong = [f"{each.deed.number}: {each.deed}: {'; '.join(each.wrong)}" for each in played if each.wrong]
    repeat = f"python -m tools.chaos --seed {SEED} --only N repeats one"
    assert not wrong, "\n".join([*wrong, repeat, chaos.table(played)])


def test_the_same_seed_means_the_same_deeds() -> None:
    deeds = [draw(SEED, number, 2.0, lab=True) for number in range(200)]
    assert deeds == [draw(SEED, number, 2.0, lab=True) for number in range(200)]
    assert {deed.kind for deed in deeds} == {"kill", "stop", "disk", "cut"}
    assert len({(deed.kind, deed.victim) for deed in deeds}) > 14

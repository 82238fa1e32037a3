"""The cadence in a checkpoint: what is carried into another run, and what is not."""

from __future__ import annotations

from flodl_planes.elche import snapshot
from flodl_planes.elche.cadence import Cadence, Measured
from flodl_planes.elche.settings import Settings

PLACES = {0: "a/0/cpu", 1: "b/0/cpu"}


def trained(anchor: int = 40) -> Cadence:
    cadence = Cadence([0, 1], Settings(anchor=anchor))
    for _ in range(6):
        counts = cadence.counts
        speeds = {0: 4.0, 1: 10.0}
        cadence.report({r: Measured(counts[r], counts[r] * ms, counts[r] * ms, ms) for r, ms in speeds.items()}, 1.0)
    return cadence


def test_the_same_places_go_on_as_they_were_whatever_their_ranks_are_called_now() -> None:
    saved = snapshot.take(trained(), PLACES)
    assert saved["ms"] == {"a/0/cpu": 4.0, "b/0/cpu": 10.0} and saved["anchor_place"] == "b/0/cpu"
    again = Cadence([0, 1], Settings())
    snapshot.restore(again, saved, {0: "b/0/cpu", 1: "a/0/cpu"})
    assert (again.anchor, again.anchor_rank, again.counts) == (40, 0, {0: 40, 1: 100})
    assert again.phase == "stable"


def test_with_a_place_that_is_new_it_measures_first_and_keeps_the_anchor() -> None:
    again = Cadence([0, 1, 2], Settings())
    snapshot.restore(again, snapshot.take(trained(), PLACES), {**PLACES, 2: "c/0/cpu"})
    assert (again.phase, again.anchor, again.smoothed(0)) == ("probe", 40, 0.0)


def test_knobs_are_the_users_and_junk_is_nothing() -> None:
    again = Cadence([0, 1], Settings(anchor=5, max_anchor=8))
    snapshot.restore(again, snapshot.take(trained(), PLACES), PLACES)
    assert again.anchor == 8
    for junk in ({}, {"anchor": "x", "ms": {}}, {"anchor": 3, "ms": {"a/0/cpu": "fast"}}):
        fresh = Cadence([0, 1], Settings())
        snapshot.restore(fresh, junk, PLACES)
        assert fresh.phase == "probe"

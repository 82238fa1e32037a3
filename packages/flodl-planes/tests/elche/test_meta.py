from flodl_planes.elche.cadence import Cadence, Measured
from flodl_planes.elche.guards import NudgeDown, Stable, SuppressGrowth
from flodl_planes.elche.meta import MetaController
from flodl_planes.elche.settings import Settings


def steady(phase: str, windows: int, anchor: int = 10) -> MetaController:
    meta = MetaController()
    for _ in range(windows):
        assert meta.read(phase, anchor, 0.1, Stable()) is None
    return meta


def test_a_learning_rate_that_falls_by_more_than_thirty_percent_halves_the_anchor_once() -> None:
    meta = steady("stable", 5)
    assert meta.read("stable", 10, 0.07, Stable()) is None, "exactly thirty is not sharp"
    assert meta.read("stable", 10, 0.069, Stable()) == NudgeDown(0.5)
    assert meta.read("stable", 10, 0.069, Stable()) is None


def test_a_drop_may_take_three_windows_and_no_more() -> None:
    meta = steady("stable", 3)
    assert [meta.read("stable", 10, rate, Stable()) for rate in (0.08, 0.06)] == [None, NudgeDown(0.5)]
    slow = steady("stable", 3)
    assert [slow.read("stable", 10, 0.1 * 0.86**n, Stable()) for n in range(1, 12)] == [None] * 11


def test_objections_in_a_row_shrink_it_sooner_the_riper_the_run() -> None:
    for phase, needed, base in (("warmup", 5, 0.3), ("stable", 3, 0.5), ("mature", 2, 0.7)):
        meta = steady(phase, 5)
        said = [meta.read(phase, 10, None, SuppressGrowth()) for _ in range(needed)]
        assert said == [None] * (needed - 1) + [NudgeDown(base)]
    meta = steady("stable", 5)
    for _ in range(4):
        assert [meta.read("stable", 10, None, v) for v in (SuppressGrowth(), SuppressGrowth(), Stable())] == [None] * 3


def test_an_anchor_that_has_been_growing_is_shrunk_more() -> None:
    meta = MetaController()
    for anchor in (10, 10, 10, 10):
        meta.read("stable", anchor, 0.1, Stable())
    nudge = meta.read("stable", 20, 0.01, Stable())
    trend = (20 - 12) / 12
    assert nudge == NudgeDown(0.5 - 0.5 * trend)
    fell = MetaController()
    for anchor in (100, 100, 100, 100):
        fell.read("stable", anchor, 0.1, Stable())
    assert fell.read("stable", 1, 0.01, Stable()) == NudgeDown(0.95), "never quite to nothing, nor to no effect"


def test_both_at_once_multiply() -> None:
    meta = steady("stable", 5)
    meta.read("stable", 10, 0.1, SuppressGrowth())
    meta.read("stable", 10, 0.1, SuppressGrowth())
    assert meta.read("stable", 10, 0.01, SuppressGrowth()) == NudgeDown(0.25)


def test_it_is_silent_before_anything_is_known_and_where_nobody_says_a_rate() -> None:
    meta = MetaController()
    assert meta.read("probe", 10, 0.1, Stable()) is None
    assert meta.read("probe", 10, 0.001, SuppressGrowth()) is None
    assert [meta.read("mature", 10, rate, Stable()) for rate in (0.1, None, float("nan"), -1.0)] == [None] * 4


def test_a_drop_of_the_learning_rate_reaches_the_anchor_and_drops_what_was_staged() -> None:
    for on, expected in ((True, 5), (False, 10)):
        cadence = Cadence([0, 1], Settings(meta_controller=on))
        for rate in (0.1, 0.1, 0.1, 0.01):
            figures = {rank: Measured(10, 100.0, 100.0, 10.0) for rank in (0, 1)}
            cadence.report(figures, 0.0, None, rate)
        assert cadence.anchor == expected

import pytest

from flodl_planes.elche import growth
from flodl_planes.elche.settings import Settings


@pytest.mark.parametrize(
    ("anchor", "sync_ms", "fill_ms", "stable", "warmup"),
    [
        (10, 400.0, 0.0, 20, 20),
        (10, 8.0, 0.0, 15, None),
        (10, 5.2, 0.1, 11, None),
        (40, 25.0, 5.0, 56, None),
        (80, 25.0, 5.0, None, None),
    ],
)
def test_the_worked_examples_of_the_reference(
    anchor: int, sync_ms: float, fill_ms: float, stable: int | None, warmup: int | None
) -> None:
    share = growth.overhead(anchor, 10.0, sync_ms, fill_ms)
    settings = Settings(anchor=10)
    assert growth.proposal(settings, anchor, share, warmup=False) == stable
    assert growth.proposal(settings, anchor, share, warmup=True) == warmup


def test_growth_ends_at_the_largest_anchor() -> None:
    assert growth.proposal(Settings(max_anchor=12), 10, 0.8, warmup=False) == 12
    assert growth.proposal(Settings(max_anchor=12), 12, 0.8, warmup=False) is None


def test_the_default_bound_gives_way_to_a_link_that_needs_more() -> None:
    assert growth.proposal(Settings(), 900, 0.8, warmup=False) == 1800
    assert growth.proposal(Settings(max_anchor=1000), 900, 0.8, warmup=False) == 1000


def test_the_anchor_a_link_asks_for_is_the_smallest_within_the_target() -> None:
    settings = Settings()
    for anchor_ms, sync_ms in ((10.0, 8.0), (100.0, 16_000.0), (2.0, 1280.0)):
        asked = growth.wanted(settings, anchor_ms, sync_ms, 0.0)
        assert growth.overhead(asked, anchor_ms, sync_ms, 0.0) <= 0.05
        assert asked == 1 or growth.overhead(asked - 1, anchor_ms, sync_ms, 0.0) > 0.05


def test_doubling_begins_where_six_doublings_are_enough() -> None:
    assert growth.leap(Settings(), 20, 3040) == 48
    assert growth.leap(Settings(), 20, 1280) is None
    assert growth.leap(Settings(max_anchor=30), 20, 3040) == 30


def test_an_overhead_of_nothing_is_no_overhead() -> None:
    assert growth.overhead(10, 0.0, 0.0, 0.0) == 0.0


def test_waiting_for_a_first_batch_asks_for_as_large_a_window_as_an_average_of_that_length() -> None:
    assert growth.wanted(Settings(), 10.0, 6.0, 2.0) == growth.wanted(Settings(), 10.0, 8.0, 0.0) == 16
    assert growth.wanted(Settings(), 10.0, 0.0, 0.0) == growth.wanted(Settings(), 0.0, 8.0, 0.0) == 1

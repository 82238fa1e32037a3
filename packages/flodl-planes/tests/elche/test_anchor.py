import pytest

from flodl_planes.elche.anchor import elect, presumed
from flodl_planes.elche.cadence import Cadence, Measured
from flodl_planes.elche.settings import Settings
from flodl_wire.plane_messages import Gpu

PASCAL, HOPPER = Gpu("cuda", 6, 6), Gpu("cuda", 9, 139)


def test_the_only_slow_rank_is_the_anchor() -> None:
    assert elect({0: 4.0, 1: 10.0, 2: 5.0}, None) == 1


def test_nobody_is_elected_while_nothing_is_known() -> None:
    assert elect({0: 0.0, 1: 0.0}, None) is None


def test_the_anchor_stays_against_a_rank_that_is_a_little_slower() -> None:
    assert elect({0: 10.0, 1: 10.9}, 0) == 0


def test_a_rank_ten_percent_slower_takes_over() -> None:
    assert elect({0: 10.0, 1: 11.1}, 0) == 1


def test_without_an_anchor_in_the_slow_cohort_its_first_rank_is_it() -> None:
    assert elect({0: 2.0, 1: 9.5, 2: 10.0}, 0) == 1


def test_of_two_equal_challengers_the_last_wins() -> None:
    assert elect({0: 10.0, 1: 11.5, 2: 11.5}, 0) == 2


@pytest.mark.parametrize(
    ("gpus", "anchor"),
    [
        ([HOPPER, PASCAL], 1),
        ([PASCAL, HOPPER, PASCAL], 0),  # equals: the lowest rank
        ([Gpu("cuda", 8, 24), Gpu("cuda", 9, 16)], 0),  # 104 against 106
        ([Gpu("cuda", 8, 24), Gpu("cuda", 9, 13)], 1),  # 104 against 103
        ([Gpu("rocm", 11, 24), Gpu("rocm", 10, 16)], 1),
        ([HOPPER, Gpu("rocm", 9, 64)], None),  # two vendors
        ([HOPPER, None, PASCAL], None),  # one did not answer
        ([None, None], None),
        ([], None),
    ],
)
def test_the_oldest_and_smallest_card_is_presumed_to_be_the_slowest(gpus: list[Gpu | None], anchor: int | None) -> None:
    assert presumed(dict(enumerate(gpus))) == anchor


def test_what_the_settings_name_outranks_what_is_presumed() -> None:
    assert Cadence([0, 1, 2], Settings(), 2).anchor_rank == 2
    assert Cadence([0, 1, 2], Settings(partition_ratios=[1.0, 2.0, 2.0]), 2).anchor_rank == 0
    assert Cadence([0, 1, 2], Settings(speed_hint=(1, 2.0)), 2).anchor_rank == 1


def test_a_presumed_anchor_holds_until_the_cadence_is_stable_and_counts_follow_what_is_measured() -> None:
    cadence = Cadence([0, 1], Settings(), 0)  # but rank 1 is slower
    measured = {rank: Measured(10, 10 * ms, 10 * ms, ms) for rank, ms in ((0, 5.0), (1, 20.0))}
    cadence.report(measured, 0.0)
    assert (cadence.anchor_rank, cadence.counts) == (0, {0: 10, 1: 3})
    for _ in range(5):
        cadence.report(measured, 0.0)
    assert (cadence.anchor_rank, cadence.counts) == (1, {0: 40, 1: 10})

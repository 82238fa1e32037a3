"""What ranks count for in an average, and whose bytes are taken where there is no mean."""

from __future__ import annotations

import pytest

from flodl_planes.coordinator.weights import steps_of, weigh
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import Deposit, Plan


def took(*steps: int, poisoned: tuple[int, ...] = ()) -> dict[int, tuple[Plan, Deposit]]:
    """Rank after rank; `poisoned` are not finite any more."""
    return {
        rank: (Plan(3, 0, []), Deposit(3, count, 10 * count, poisoned="weight" if rank in poisoned else ""))
        for rank, count in enumerate(steps)
    }


def test_the_rank_of_most_steps_leads_and_the_lowest_of_equals() -> None:
    assert weigh(took(2, 3, 3, 0), 1.0, 0, needed=False) == ({"0": 0.25, "1": 0.375, "2": 0.375}, 1)


def test_an_idle_rank_has_no_weight_under_any_exponent() -> None:
    assert weigh(took(4, 1, 0), 0.5, 2, needed=False) == ({"0": 2 / 3, "1": 1 / 3}, 0)
    assert weigh(took(4, 1, 0), 0.0, 2, needed=False) == ({"0": 0.5, "1": 0.5}, 0)


def test_where_nobody_has_moved_everybody_keeps_what_it_has_unless_an_average_is_needed() -> None:
    assert weigh(took(0, 0), 1.0, 1, needed=False) == ({}, 1)
    assert weigh(took(0, 0), 1.0, 1, needed=True) == ({"1": 1.0}, 1)
    assert weigh(took(2, 0), 1.0, 1, needed=True) == ({"0": 1.0}, 0), "the first is asked where nobody has moved"


def test_a_model_that_is_not_finite_counts_for_nothing_and_does_not_lead() -> None:
    some = took(2, 9, 3, poisoned=(1,))
    assert steps_of(some) == {0: 2, 2: 3}
    assert weigh(some, 1.0, 0, needed=False) == ({"0": 0.4, "2": 0.6}, 2)
    with pytest.raises(Broken, match="rank 1: first weight") as caught:
        weigh(took(0, 2, poisoned=(1,)), 1.0, 0, needed=True)
    assert caught.value.code == "not-finite"

"""What an average costs a rank, from what it tells and from the hub's clock."""

from flodl_planes.coordinator.costs import Costs
from flodl_wire.plane_messages import Deposit


def test_the_ways_of_a_deposit_and_of_the_order_belong_to_the_average() -> None:
    costs = Costs()
    costs.ordered({0: 10.0, 1: 12.0}, 12.0)  # rank 0 waited for rank 1 for two seconds
    near, far = Deposit(4, 1, 10, wait_ms=2700.0, sync_ms=700.0), Deposit(4, 1, 10, wait_ms=1000.0, sync_ms=700.0)
    assert (costs.whole(0, near).sync_ms, costs.whole(1, far).sync_ms) == (700.0, 1000.0)
    assert (near.sync_ms, far.sync_ms) == (700.0, 700.0), "what was told is left alone"


def test_they_are_added_once_and_never_below_what_the_rank_tells() -> None:
    costs = Costs()
    costs.ordered({0: 10.0}, 12.0)
    assert costs.whole(0, Deposit(4, 1, 10, wait_ms=1900.0, sync_ms=5.0)).sync_ms == 5.0
    assert costs.whole(0, Deposit(4, 1, 10, wait_ms=9000.0, sync_ms=5.0)).sync_ms == 5.0


def test_an_average_that_is_made_while_ranks_work_costs_what_they_tell() -> None:
    costs = Costs()
    costs.ordered({0: 10.0}, 10.0)
    costs.hidden()
    assert costs.whole(0, Deposit(4, 1, 10, wait_ms=500.0, sync_ms=5.0)).sync_ms == 5.0

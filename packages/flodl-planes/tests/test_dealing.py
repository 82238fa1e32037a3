"""Windows as they are really dealt: the probe, the body of an epoch, its tail."""

from flodl_planes.coordinator.dealing import Lockstep, Paced
from flodl_planes.coordinator.pool import Pool, batches_in
from flodl_planes.elche.cadence import Cadence, Measured
from flodl_planes.elche.settings import Settings


def paced(ms: dict[int, float], **settings: int) -> Paced:
    cadence = Cadence(ms, Settings(**settings))  # type: ignore[arg-type]
    if any(ms.values()):
        cadence.report({rank: Measured(10, 10 * speed, 10 * speed, speed) for rank, speed in ms.items()}, 0.0)
    return Paced(cadence)


def windows(
    dealer: Paced | Lockstep, ranks: list[int], batches: int, busy: dict[int, float] | None = None
) -> list[list[int]]:
    pool = Pool(batches * 10, 10)
    dealt = []
    while pool.batches:
        shares = dealer.deal(pool, ranks, batches, busy or {})
        dealt.append([batches_in(shares[rank], 10) for rank in ranks])
    return dealt


def test_the_first_window_of_a_run_is_a_short_probe() -> None:
    assert windows(paced({0: 0.0, 1: 0.0}), [0, 1], 20)[0] == [3, 3]
    assert windows(paced({0: 0.0, 1: 0.0}, anchor=2), [0, 1], 20)[0] == [2, 2]
    assert windows(paced({0: 0.0, 1: 0.0, 2: 0.0}), [0, 1, 2], 2)[0] == [1, 1, 0]


def test_the_body_of_an_epoch_follows_the_counts() -> None:
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 350)[:8] == [[25, 10]] * 8


def test_an_epochs_tail_is_one_window_or_two_equal_ones() -> None:
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 46) == [[33, 13]]
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 60) == [[22, 8], [22, 8]]


def test_the_evaluating_rank_gets_less_of_a_window() -> None:
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 350, {0: 40.0})[0] == [15, 10]
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 46, {0: 40.0}) == [[30, 16]]


def test_an_evaluation_longer_than_a_window_makes_the_window_longer() -> None:
    assert windows(paced({0: 4.0, 1: 10.0}), [0, 1], 350, {0: 300.0})[0] == [0, 30]


def test_in_lockstep_the_last_ranks_go_without_at_an_epochs_end() -> None:
    assert windows(Lockstep(), [0, 1, 2], 7) == [[1, 1, 1], [1, 1, 1], [1, 0, 0]]

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_planes.coordinator.pool import Ledger, Pool, batches_in, samples_in
from flodl_wire.faults import Broken


def test_batches_come_from_the_front_and_only_the_last_is_short() -> None:
    pool = Pool(100, 32)
    assert (pool.take(1), pool.take(2), pool.batches, pool.take(9)) == ([(0, 32)], [(32, 64)], 1, [(96, 4)])


def test_what_is_put_back_is_dealt_first() -> None:
    pool = Pool(100, 10)
    first, second = pool.take(3), pool.take(3)
    pool.put_back(first)
    assert pool.take(4) == [(0, 30), (60, 10)]
    pool.put_back(second)
    assert pool.batches == 6


def test_putting_back_twice_is_refused() -> None:
    pool = Pool(100, 10)
    spans = pool.take(3)
    pool.put_back(spans)
    with pytest.raises(Broken, match="in the pool already"):
        pool.put_back(spans)


def test_merging_a_sample_twice_is_refused() -> None:
    ledger = Ledger(100)
    ledger.merge([(0, 50)])
    for spans in ([(49, 1)], [(0, 100)], [(40, 20)], [(90, 11)]):
        with pytest.raises(Broken, match="merged already"):
            ledger.merge(spans)
    ledger.merge([(50, 50)])
    assert ledger.complete
    assert ledger.spans() == [(0, 100)]


@given(st.integers(1, 500), st.integers(1, 40), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40))
def test_every_sample_is_dealt_exactly_once_whatever_comes_back(
    samples: int, batch: int, steps: list[tuple[int, bool]]
) -> None:
    pool, ledger = Pool(samples, batch), Ledger(samples)
    for batches, comes_back in [*steps, (samples, False)]:
        spans = pool.take(batches)
        assert batches_in(spans, batch) <= batches
        if comes_back:
            pool.put_back(spans)
        else:
            ledger.merge(spans)
        assert ledger.merged + samples_in(pool.take(samples)) == samples
        pool = Pool(samples, batch)  # take() above emptied it: deal what the ledger lacks
        held = pool.take(samples)
        pool.put_back([(at, 1) for start, count in held for at in range(start, start + count) if not _in(ledger, at)])
    assert ledger.complete


def _in(ledger: Ledger, at: int) -> bool:
    return any(start <= at < start + count for start, count in ledger.spans())

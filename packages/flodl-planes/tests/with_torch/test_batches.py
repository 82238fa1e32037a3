"""Plans become batches: the same with and without worker processes, none mixed with another plan's."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from flodl_planes.rank.batches import Batches, move
from flodl_planes.rank.permutation import order
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import Plan

CPU = torch.device("cpu")


class Squares(Dataset[tuple[int, float]]):
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, float(index**2)


Make = Callable[..., Batches]


@pytest.fixture
def batches() -> Iterator[Make]:
    made: list[Batches] = []

    def make(workers: int, dataset: Any = None, **changed: Any) -> Batches:
        made.append(Batches(dataset or Squares(), 4, seed=3, rank=0, workers=workers, device=CPU, **changed))
        return made[-1]

    yield make
    for found in made:
        found.close()


def plan(window: int, *spans: list[int], epoch: int = 0) -> Plan:
    return Plan(window=window, epoch=epoch, spans=list(spans))


def indices(found: Batches, of: Plan) -> list[list[int]]:
    return [batch[0].tolist() for _, batch in found.of(of)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plan_is_dealt_from_its_epochs_permutation(batches: Make, workers: int) -> None:
    found = batches(workers)
    for epoch in (0, 1):
        dealt = order(50, 3, epoch).tolist()
        expected = [dealt[4:8], dealt[8:10], dealt[46:50]]
        assert indices(found, plan(epoch, [4, 6], [46, 4], epoch=epoch)) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_each_batch_comes_with_its_number_of_samples(batches: Make, workers: int) -> None:
    assert [count for count, _ in batches(workers).of(plan(0, [40, 10]))] == [4, 4, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plan_without_spans_has_no_batches(batches: Make, workers: int) -> None:
    found = batches(workers)
    found.begin(plan(0))
    assert indices(found, plan(0)) == []
    assert len(indices(found, plan(1, [0, 8]))) == 2


class Told(Squares):
    """Tells of each sample that is loaded, by whichever process."""

    def __init__(self) -> None:
        self.loaded: Any = multiprocessing.Queue()

    def __getitem__(self, index: int) -> tuple[int, float]:
        self.loaded.put(index)
        return super().__getitem__(index)

    def next(self, samples: int) -> list[int]:
        """The samples that are loaded next, as soon as they are."""
        return [self.loaded.get(timeout=30) for _ in range(samples)]

    def left(self) -> list[int]:
        """All that were loaded by processes that have ended."""
        found = []
        while not self.loaded.empty():
            found += self.next(1)
        return found


@pytest.mark.parametrize("taken", [1, 2])
def test_a_plan_that_lies_ready_is_loaded_while_the_one_before_it_is_done(batches: Make, taken: int) -> None:
    told, dealt = Told(), order(50, 3, 0).tolist()
    found = batches(1, told)
    walk = found.of(plan(0, [0, 8]))
    for _ in range(taken):
        next(walk)
    found.begin(plan(1, [8, 8]))
    if taken == 1:
        assert next(walk)[1][0].tolist() == dealt[4:8], "the window in hand is handed out to its end"
    assert told.next(12) == dealt[:12], "nobody has asked for the next one"
    assert [batch[0].tolist() for _, batch in walk] == []
    assert indices(found, plan(1, [8, 8])) == [dealt[8:12], dealt[12:16]]
    assert indices(found, plan(2, [16, 4])) == [dealt[16:20]]
    assert told.next(8) == dealt[12:20], "each sample is loaded once"


def test_a_plan_that_is_withdrawn_while_another_is_done_gives_way_to_the_next(batches: Make) -> None:
    told, dealt = Told(), order(50, 3, 0).tolist()
    found = batches(1, told)
    walk = found.of(plan(0, [0, 16]))
    next(walk)
    found.begin(plan(1, [16, 24]))
    got = [next(walk)[1][0].tolist() for _ in range(2)]  # now a batch or two of the next one is with the worker
    found.begin(plan(1, [40, 8]))
    got += [batch[0].tolist() for _, batch in walk]
    assert got == [dealt[4:8], dealt[8:12], dealt[12:16]]
    assert indices(found, plan(1, [40, 8])) == [dealt[40:44], dealt[44:48]]
    loaded = told.next(24)
    while loaded[-8:] != dealt[40:48]:
        loaded += told.next(4)
    wasted = loaded[16:-8]
    assert loaded[:16] == dealt[:16] and wasted == dealt[16 : 16 + len(wasted)]
    assert len(wasted) <= 8, "what the worker had already, and nothing of the rest"


def test_a_run_that_ends_with_a_plan_begun_loads_no_more_and_lets_its_workers_go(batches: Make) -> None:
    others, told = set(multiprocessing.active_children()), Told()
    found = batches(1, told)
    walk = found.of(plan(0, [0, 8]))
    next(walk)
    found.begin(plan(1, [8, 40]))
    next(walk)
    told.next(8)
    (child,) = [child for child in multiprocessing.active_children() if child not in others]
    found.close()
    child.join(30)
    assert not child.is_alive()
    assert len(told.left()) <= 8, "what the worker had already, and nothing of the rest"


def test_a_dataset_that_fetches_in_bulk_is_never_asked_for_nothing(batches: Make) -> None:
    class Bulk(Squares):
        def __getitems__(self, wanted: list[int]) -> list[tuple[int, float]]:
            assert wanted
            return [(index, -1.0) for index in wanted]

    found = batches(1, Bulk())
    assert [len(indices(found, plan(window, [4 * window, 4]))) for window in range(4)] == [1] * 4


def test_a_plan_begun_early_is_not_mixed_with_another_that_took_its_place(batches: Make) -> None:
    found = batches(2)
    dealt = order(50, 3, 0).tolist()
    found.begin(plan(0, [0, 24]))
    found.begin(plan(0, [24, 8]))  # a lost host made the round begin again, with other plans
    assert indices(found, plan(0, [24, 8])) == [dealt[24:28], dealt[28:32]]
    assert indices(found, plan(1, [32, 4])) == [dealt[32:36]]


def test_loading_does_not_move_the_stream_that_dropout_draws_from(batches: Make) -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    indices(batches(1), plan(0, [0, 8]))
    assert torch.equal(torch.get_rng_state(), state)


def test_collate_is_the_users_own(batches: Make) -> None:
    found = batches(0, collate=lambda samples: sum(index for index, _ in samples))
    assert [batch for _, batch in found.of(plan(0, [0, 8]))] == [sum(order(50, 3, 0)[k : k + 4]) for k in (0, 4)]


def test_a_dataset_that_fetches_in_bulk_is_asked_in_bulk(batches: Make) -> None:
    class Bulk(Squares):
        def __getitems__(self, wanted: list[int]) -> list[tuple[int, float]]:
            return [(index, -1.0) for index in wanted]

    found = batches(0, Bulk())
    assert [batch[1].tolist() for _, batch in found.of(plan(0, [0, 4]))] == [[-1.0] * 4]


def test_an_error_in_the_dataset_reaches_the_script(batches: Make) -> None:
    class Bad(Squares):
        def __getitem__(self, index: int) -> tuple[int, float]:
            raise KeyError("no such file")

    for workers in (0, 1):
        with pytest.raises(KeyError, match="no such file"):
            list(batches(workers, Bad()).of(plan(0, [0, 4])))


class Deadly(Squares):
    """Whoever loads one of `deadly` ends by the signal, or with the exit code."""

    def __init__(self, by: int, deadly: Collection[int] = range(0, 50, 10)) -> None:
        self.by, self.deadly = by, deadly

    def __getitem__(self, index: int) -> tuple[int, float]:
        if torch.utils.data.get_worker_info() is not None and index in self.deadly:
            faulthandler.disable()
            os.kill(os.getpid(), -self.by) if self.by < 0 else os._exit(self.by)
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (-signal.SIGKILL, "was killed by signal 9 (out of memory?)"),
        (-signal.SIGBUS, "was killed by signal 7 (/dev/shm is full?)"),
        (-signal.SIGABRT, "was killed by signal 6"),
        (3, "ended with exit code 3"),
    ],
)
# where torch's alarm is heard in the callback of a weak reference it is printed and lost, and the queue tells of the
# death instead; where it cuts off the opening of a socket nobody closes that
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_dies_is_the_cause_whatever_torch_raises(
    batches: Make, workers: int, by: int, words: str
) -> None:
    others = set(multiprocessing.active_children())
    found = batches(workers, Deadly(by))
    with pytest.raises((RuntimeError, OSError, EOFError)) as caught:
        indices(found, plan(0, [0, 50]))
    cause = found.cause(caught.value)
    assert isinstance(cause, Broken) and cause.why.endswith(words) and cause.fix
    assert not [child for child in multiprocessing.active_children() if child not in others]
    assert found.cause(caught.value) is caught.value  # nobody is left to have died
    del caught
    gc.collect()  # here, and not in the next test, which would be blamed for that socket


def test_a_worker_that_dies_while_the_script_computes_is_found_at_the_next_batch(batches: Make) -> None:
    third = order(50, 3, 0)[8].item()  # the worker is asked for it as soon as the first has been taken
    others = set(multiprocessing.active_children())
    found = batches(1, Deadly(3, [third]))
    loaded = found.of(plan(0, [0, 50]))
    next(loaded)
    (worker,) = [child for child in multiprocessing.active_children() if child not in others]
    worker.join(30)
    assert worker.exitcode == 3, "and nothing was raised here"
    with pytest.raises(RuntimeError, match="has ended") as caught:
        next(loaded)
    assert isinstance(found.cause(caught.value), Broken)


def test_a_handler_of_dead_children_that_was_there_before_is_still_called() -> None:
    """In a process of its own: torch installs its handler once."""
    program = f"""
import signal, subprocess, sys, torch
calls = []
signal.signal(signal.SIGCHLD, lambda *_: calls.append(1))
from flodl_planes.rank.batches import Batches
from flodl_wire.plane_messages import Plan
found = Batches(range(50), 4, seed=3, rank=0, workers=1, device=torch.device("cpu"))
assert len(list(found.of(Plan(window=0, epoch=0, spans=[[0, 50]])))) == {len(range(0, 50, 4))}
before = len(calls)
subprocess.run(["true"])
assert len(calls) == before + 1, calls
found.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), FileNotFoundError("no such file")])
def test_an_error_while_all_workers_live_is_its_own_cause(batches: Make, error: Exception) -> None:
    found = batches(2)
    indices(found, plan(0, [0, 8]))
    assert found.cause(error) is error
    assert batches(0).cause(error) is error


def test_every_tensor_of_a_batch_is_moved_and_nothing_else_touched() -> None:
    pair = namedtuple("pair", "left right")
    batch = {"a": [torch.zeros(2), "word"], "b": pair(torch.zeros(1), (3, torch.zeros(1)))}
    moved = move(batch, torch.device("meta"))
    assert moved["a"][0].device.type == "meta" and moved["a"][1] == "word"
    assert moved["b"].left.device.type == "meta" and moved["b"].right[0] == 3
    assert move(batch, CPU) is batch


def test_closing_lets_the_workers_go_at_once(batches: Make) -> None:
    others = set(multiprocessing.active_children())  # a test before this one may have some that are just ending
    found = batches(2)
    indices(found, plan(0, [0, 8]))
    children = [child for child in multiprocessing.active_children() if child not in others]
    assert len(children) == 2
    began = time.monotonic()
    found.close()
    assert not any(child.is_alive() for child in children)
    assert time.monotonic() - began < 4  # torch waits 5 s for each that it has to end by force

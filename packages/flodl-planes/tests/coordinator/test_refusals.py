"""Worlds that cannot train together, and work that cannot be counted."""

from typing import Any

import pytest

from flodl_planes.coordinator.hub_events import CheckpointFailed, Rescue, WriteCheckpoint
from flodl_planes.coordinator.transport_events import FromRank, RelayJoined, RoundDone
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import Applied, Deposit, TensorSpec

WEIGHT = TensorSpec("weight", [2, 3], "F32", "param")
STEPS = TensorSpec("steps", [], "I64", "buffer")


def refusal(world: Any, **of_rank_1: Any) -> Any:
    world.form()
    world.tell(RelayJoined("here", [0, 1, 2]))
    for rank in (0, 1, 2):
        world.tell(FromRank(rank, world.hello(rank, **(of_rank_1 if rank == 1 else {}))))
    assert world.rounds == []
    return world.failure()


@pytest.mark.parametrize(
    ("term", "value", "sentence"),
    [
        ("batch_size", 64, "ranks 0, 2 say 10; rank 1 says 64"),
        ("dataset", 99, "ranks 0, 2 say 100; rank 1 says 99"),
        ("max_failure", 1, "ranks 0, 2 say nothing; rank 1 says 1"),
        ("elche", {"anchor": 3}, "ranks 0, 2 say nothing; rank 1 says {'anchor': 3}"),
        ("wire", "int8", "ranks 0, 2 say float32; rank 1 says int8"),
        (
            "outer",
            {"kind": "nesterov", "lr": 0.7, "momentum": 0.9},
            "ranks 0, 2 say nothing; rank 1 says {'kind': 'nesterov', 'lr': 0.7, 'momentum': 0.9}",
        ),
    ],
)
def test_terms_that_differ_are_refused_naming_the_term_and_who_says_what(
    paper: Any, term: str, value: Any, sentence: str
) -> None:
    world = paper({"here": [0, 1, 2]}, elche={})
    failed = refusal(world, terms=world.terms(**{term: value}))
    assert (failed.code, failed.what) == ("terms-differ", f"cannot train together: the ranks differ in {term}")
    assert failed.why == sentence


@pytest.mark.parametrize(("term", "value"), [("wire", "fp4"), ("outer", {"kind": "adam", "lr": 1.0, "momentum": 0.0})])
def test_a_wire_or_an_outer_optimizer_that_nobody_knows_is_refused(paper: Any, term: str, value: Any) -> None:
    world = paper({"here": [0]})
    world.form()
    world.tell(FromRank(0, world.hello(0, terms=world.terms(**{term: value}))))
    failed = world.failure()
    assert world.rounds == [] and (value if term == "wire" else "adam") in failed.why


def test_a_script_that_insists_on_another_mode_is_refused(paper: Any) -> None:
    world = paper({"here": [0]})
    world.form()
    world.tell(FromRank(0, world.hello(0, terms=world.terms(mode="cpu_sync"))))
    assert "Trainer(mode='cpu_sync'), but the world was started as cpu_cadence" in world.failure().why


@pytest.mark.parametrize(
    ("tensors", "theirs"),
    [
        ([TensorSpec("weight", [3, 2], "F32", "param"), STEPS], "rank 1 has param weight (F32 3×2)"),
        ([TensorSpec("weight", [2, 3], "BF16", "param"), STEPS], "rank 1 has param weight (BF16 2×3)"),
        ([STEPS, WEIGHT], "rank 1 has buffer steps (I64 scalar)"),
        (
            [WEIGHT, STEPS, TensorSpec("head", [9], "F32", "param")],
            "rank 1 has param head (F32 9), rank 0 ends before it",
        ),
        ([WEIGHT], "rank 0 has buffer steps (I64 scalar), rank 1 ends before it"),
    ],
)
def test_models_that_differ_are_refused_naming_the_first_difference(
    paper: Any, tensors: list[TensorSpec], theirs: str
) -> None:
    failed = refusal(paper({"here": [0, 1, 2]}), tensors=tensors)
    assert failed.code == "schema-differs"
    assert theirs in failed.why


def test_equal_tensors_with_another_signature_are_refused(paper: Any) -> None:
    failed = refusal(paper({"here": [0, 1, 2]}), model_sig="cd" * 32)
    assert failed.why == "signature abababababab against cdcdcdcdcdcd"


@pytest.mark.parametrize("term", ["dataset", "batch_size", "epochs"])
def test_a_run_of_nothing_is_refused(paper: Any, term: str) -> None:
    world = paper({"here": [0]})
    world.form()
    world.tell(FromRank(0, world.hello(0, terms=world.terms(**{term: 0}))))
    assert world.failure().why == f"{term} is 0"


def test_an_unknown_cadence_setting_is_refused_by_name(paper: Any) -> None:
    world = paper({"here": [0]})
    world.form()
    world.tell(FromRank(0, world.hello(0, terms=world.terms(elche={"ancor": 3}))))
    assert "ancor" in world.failure().why


def test_a_relay_that_speaks_for_other_ranks_is_refused(paper: Any) -> None:
    world = paper({"here": [0, 1]})
    world.form()
    world.tell(RelayJoined("here", [0, 5]))
    assert "ranks [0, 5], the world has [0, 1] there" in world.failure().why


@pytest.mark.parametrize(
    ("deposit", "code"), [(Deposit(0, 3, 20, 30.0), "samples-differ"), (Deposit(7, 3, 30, 30.0), "bad-deposit")]
)
def test_work_that_is_not_the_plan_is_refused(paper: Any, deposit: Deposit, code: str) -> None:
    world = paper({"here": [0, 1]}).load()
    world.tell(FromRank(0, deposit))
    assert world.failure().code == code


def test_a_second_deposit_for_the_same_window_is_refused(paper: Any) -> None:
    world = paper({"here": [0, 1]}).load()
    world.deposit(0)
    world.deposit(0)
    assert world.failure().why == "it delivered window 0, expected was nothing"


def test_a_checkpoint_that_cannot_be_written_fails_the_run(paper: Any) -> None:
    world = paper({"here": [0]}, samples=10).load()
    coordinator = world.coordinator
    coordinator.handle(FromRank(0, Deposit(0, 1, 10, 10.0)), 1.0)
    coordinator.handle(RoundDone(1, 0), 1.1)
    coordinator.handle(FromRank(0, Applied(1, 1.0)), 1.2)
    orders = coordinator.handle(FromRank(0, Deposit(1, 0, 0)), 1.2)
    assert isinstance(orders[0], WriteCheckpoint)
    full = Broken("checkpoint-failed", "cannot write x", "No space left on device")
    world.said = coordinator.handle(CheckpointFailed(full), 1.3)
    assert (world.failure().code, world.failure().why) == ("checkpoint-failed", "No space left on device")
    (rescue,) = [order for order in world.said if isinstance(order, Rescue)]
    assert (rescue.number, rescue.cursor.epoch) == (1, 1), "the model alone may find room where all of it did not"

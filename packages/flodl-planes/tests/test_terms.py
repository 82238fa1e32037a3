"""What may be asked of the Trainer in numbers, and how each refusal reads."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_planes.rank.terms import Cadence, Settings, check_dataset
from flodl_planes.rank.wishes import Safety
from flodl_wire.faults import Refused


def settings(**changed: Any) -> Settings:
    return Settings(**{"batch_size": 32, "epochs": 5, **changed})


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("batch_size", 0), ("batch_size", -1), ("batch_size", 2.5), ("batch_size", True), ("batch_size", None),
        ("epochs", 0), ("epochs", -3), ("epochs", 1.5), ("seed", -1), ("seed", "7"), ("workers", -1),
        ("gamma", -0.1), ("gamma", float("nan")), ("mode", "cpu"), ("mode", 3),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_meant_is_refused_by_name_with_a_fix(argument: str, value: object) -> None:
    with pytest.raises(Refused) as refused:
        settings(**{argument: value})
    assert refused.value.what == f"cannot train with {argument}={value!r}"
    assert refused.value.why and refused.value.fix


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("anchor", 0), ("anchor", 2.0), ("min_anchor", 0), ("max_anchor", 0), ("overhead_target", 0.0),
        ("overhead_target", 1), ("max_batch_diff", -1), ("relax_up", 1), ("meta_controller", "on"), ("guard", "level"),
        ("divergence_threshold", 0), ("partition_ratios", []), ("partition_ratios", [1, 0]), ("partition_ratios", 3),
        ("speed_hint", 1), ("speed_hint", (0,)), ("speed_hint", (-1, 2.0)), ("speed_hint", (0, 0.5)),
    ],
)  # fmt: skip
def test_a_knob_of_the_cadence_that_cannot_be_meant_is_refused_by_name(knob: str, value: object) -> None:
    with pytest.raises(Refused, match=f"cannot train with {knob}="):
        Settings(32, 5, cadence=Cadence(**{knob: value}))


def test_a_largest_anchor_below_the_smallest_is_refused() -> None:
    with pytest.raises(Refused, match="below the smallest anchor, 20"):
        Cadence(anchor=20, max_anchor=10).check()


def test_only_knobs_that_are_set_travel() -> None:
    terms = settings(cadence=Cadence(anchor=4, partition_ratios=(2.5, 1)), safety=Safety(max_failure=0.5)).terms(
        "cpu_cadence", 100, True
    )
    assert terms.elche == {"anchor": 4, "partition_ratios": [2.5, 1]}
    assert (terms.mode, terms.dataset, terms.evaluates, terms.max_failure) == ("cpu_cadence", 100, True, 0.5)


def test_a_mode_may_be_spelled_with_dashes() -> None:
    assert settings(mode="cpu-sync").mode == "cpu_sync"


def test_a_mode_that_is_none_is_refused_naming_those_there_are() -> None:
    with pytest.raises(Refused) as refused:
        settings(mode="nccl_async")
    assert "cpu_async" in refused.value.fix and "nccl_cadence" in refused.value.fix


def test_the_scripts_mode_must_be_the_worlds() -> None:
    settings(mode="cpu_sync").agree("cpu_sync", 2)
    settings().agree("cpu_sync", 2)
    with pytest.raises(Refused, match="was started in mode cpu_cadence"):
        settings(mode="cpu_sync").agree("cpu_cadence", 2)
    with pytest.raises(Refused, match="cannot use the Trainer in mode torch"):
        settings().agree("torch", 2)


def test_what_only_the_hub_can_do_is_refused_where_tensors_go_past_it() -> None:
    with pytest.raises(Refused, match="past the hub"):
        Settings(32, 5, wire="bf16").agree("nccl_cadence", 2)
    with pytest.raises(Refused, match="past the hub"):
        Settings(32, 5, outer={"kind": "nesterov", "lr": 0.7, "momentum": 0.9}).agree("nccl_sync", 2)
    Settings(32, 5).agree("nccl_sync", 2)


def test_shares_are_one_per_rank() -> None:
    with pytest.raises(Refused, match="the world has 3 ranks"):
        Settings(32, 5, cadence=Cadence(partition_ratios=[1, 2])).agree("cpu_cadence", 3)


def test_the_slowest_rank_that_is_hinted_at_is_one_of_the_world() -> None:
    assert Cadence(speed_hint=(2, 2.5)).as_elche() == {"speed_hint": [2, 2.5]}
    Settings(32, 5, cadence=Cadence(speed_hint=(2, 2.5))).agree("cpu_cadence", 3)
    with pytest.raises(Refused, match="the world has 2 ranks"):
        Settings(32, 5, cadence=Cadence(speed_hint=(2, 2.5))).agree("cpu_cadence", 2)


class Loader:
    dataset, batch_sampler = [1], None


class Stream:
    def __iter__(self) -> Any:
        return iter(())


class Endless(Stream):
    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        raise TypeError("it never ends")


class IterableDataset(Stream):
    """Torch's, as a subclass with a length has it: its [index] is inherited and raises."""


class Lines(IterableDataset):
    def __getitem__(self, index: int) -> int:
        raise NotImplementedError

    def __len__(self) -> int:
        return 1000


class Tensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Lines(), "data=list(dataset)"),
        (IterableDataset(), "data=list(dataset)"),
        ("train.csv", "pass what holds the samples"),
        ({"x": [1, 2]}, "pass what holds the samples"),
        ((Tensor(50, 4), Tensor(50)), "TensorDataset(x, y)"),
        (Loader(), "Trainer(data=loader.dataset"),
        (Stream(), "map-style dataset"),
        (Endless(), "whose length is known"),
        (iter([1]), "map-style dataset"),
        (None, "map-style dataset"),
        ([], "check the path"),
    ],
)
def test_data_that_cannot_be_dealt_is_refused_saying_what_to_pass(data: object, words: str) -> None:
    with pytest.raises(Refused) as refused:
        check_dataset(data, 1)
    assert words in refused.value.fix


def test_a_tuple_of_samples_is_data_as_any_list_is() -> None:
    assert check_dataset(((1, 2), (3, 4), (5, 6)), 1) == 3
    assert check_dataset(tuple(Tensor(2) for _ in range(9)), 1) == 9
    assert check_dataset((Tensor(50), Tensor(60)), 1) == 2
    assert check_dataset((Tensor(), Tensor()), 1) == 2


def test_a_dataset_smaller_than_the_world_is_refused() -> None:
    assert check_dataset([1, 2], 2) == 2
    with pytest.raises(Refused, match="2 samples to 3 ranks"):
        check_dataset([1, 2], 3)

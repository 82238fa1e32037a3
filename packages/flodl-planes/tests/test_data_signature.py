"""Equal data have equal signatures, other data others; augmentation does not make data other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flodl_planes.rank.data_signature import of


def items(count: int = 100, shift: float = 0.0) -> list[Any]:
    numbers = range(count)
    return [(np.full((2, 3), n + shift, np.float32), {"label": n % 10, "name": f"n{n}"}) for n in numbers]


class Augmented:
    """Each reading of an item is another."""

    def __init__(self, kind: type = np.float32, width: int = 4) -> None:
        self._random = np.random.RandomState()
        self._kind = kind
        self._width = width

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        return self._random.rand(self._width).astype(self._kind), index


def test_the_same_data_have_the_same_signature() -> None:
    assert of(items(), None) == of(items(), None) and len(of(items(), None)) == 64


@pytest.mark.parametrize("other", [items(99), items(shift=1.0), list(range(100)), ["a"] * 100])
def test_other_data_have_another(other: list[Any]) -> None:
    assert of(other, None) != of(items(), None)


def test_what_augmentation_changes_does_not_count_and_what_it_leaves_does() -> None:
    assert of(Augmented(), None) == of(Augmented(), None)
    assert of(Augmented(np.float64), None) != of(Augmented(), None) != of(Augmented(width=5), None)


def test_a_script_may_name_its_data_or_forbid_to_compare_them() -> None:
    assert of(items(), "imagenet") == of(["x"], "imagenet") != of(["x"], "mnist")
    assert of(items(), "") == ""


def test_a_long_dataset_costs_sixteen_items() -> None:
    class Long:
        read = 0

        def __len__(self) -> int:
            return 10**12

        def __getitem__(self, index: int) -> int:
            self.read += 1
            assert 0 <= index < 10**12
            return index

    data = Long()
    assert of(data, None) == of(Long(), None) and data.read == 32

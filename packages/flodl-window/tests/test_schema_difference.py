from __future__ import annotations

import pytest

from flodl_window.schema_difference import first_difference
from flodl_wire.plane_messages import TensorSpec


def tensor(name: str, *shape: int, dtype: str = "F32", kind: str = "param") -> TensorSpec:
    return TensorSpec(name, list(shape), dtype, kind)


A, B, C = tensor("a", 2, 2), tensor("b", 3), tensor("c", 4)


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        ([A, B], [A, B], ""),
        ([], [A], ""),
        ([A], [], ""),
        ([A, tensor("b", 4)], [A, B], "b is F32 [4] there and F32 [3] at node-a"),
        ([A, tensor("b", 3, dtype="BF16")], [A, B], "b is BF16 [3] there and F32 [3] at node-a"),
        ([A, tensor("b", 3, kind="buffer")], [A, B], "b is F32 [3] (a buffer) there and F32 [3] (a param) at node-a"),
        ([A, B, C], [A, B], "it has c, F32 [4], and node-a has not"),
        ([A], [A, B], "it lacks b, F32 [3], which node-a has"),
        ([A, C, B], [A, B], "it has c, F32 [4], and node-a has not"),
        ([A, C], [A, B, C], "it lacks b, F32 [3], which node-a has"),
        ([B, A], [A, B], "b stands where node-a has a"),
    ],
)
def test_the_first_tensor_that_differs_is_named(theirs: list[TensorSpec], ours: list[TensorSpec], words: str) -> None:
    assert first_difference(theirs, ours, "node-a") == words

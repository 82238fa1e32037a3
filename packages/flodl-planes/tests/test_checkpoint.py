from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from flodl_planes.plane.layout import lay_out
from flodl_planes.records import checkpoint, tensor_file
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import TensorSpec

TENSORS = [
    TensorSpec("weight", [2, 3], "F32", "param", ["head.weight"]),
    TensorSpec("half", [5], "F16", "param"),
    TensorSpec("count", [], "I64", "buffer"),
    TensorSpec("wide", [2], "F64", "buffer"),
    TensorSpec("mask", [3], "BOOL", "buffer"),
    TensorSpec("none", [0, 4], "F32", "buffer"),
]


def flat() -> tuple[list[int], Any]:
    layout = lay_out(TENSORS)
    live = np.zeros(layout.total_bytes, np.uint8)
    values = [np.arange(6, dtype=np.float32), np.arange(5, dtype=np.float16), np.array([7]), np.array([0.5, 2.0])]
    for offset, value in zip(layout.offsets, [*values, np.array([True, False, True])], strict=False):
        live[offset : offset + value.nbytes] = value.view(np.uint8)
    return layout.offsets, live


def test_the_file_is_read_by_the_library_with_every_name_and_value(tmp_path: Path) -> None:
    path = checkpoint.write(tmp_path, TENSORS, *flat(), {"format": "pt", "epoch": "3"})
    with safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt", "epoch": "3"}
        assert sorted(file.keys()) == ["count", "half", "head.weight", "mask", "none", "weight", "wide"]
        assert file.get_tensor("weight").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert file.get_tensor("head.weight").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert file.get_tensor("half").tolist() == [0, 1, 2, 3, 4]
        assert file.get_tensor("count").tolist() == 7
        assert file.get_tensor("wide").tolist() == [0.5, 2.0]
        assert file.get_tensor("mask").tolist() == [True, False, True]
        assert file.get_tensor("none").shape == (0, 4)


def test_the_previous_file_is_kept(tmp_path: Path) -> None:
    offsets, live = flat()
    for epoch in "123":
        checkpoint.write(tmp_path, TENSORS, offsets, live, {"epoch": epoch})
    with safe_open(tmp_path / checkpoint.NAME, "np") as file:
        assert file.metadata() == {"epoch": "3"}
    with safe_open(tmp_path / checkpoint.PREVIOUS, "np") as file:
        assert file.metadata() == {"epoch": "2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([checkpoint.NAME, checkpoint.PREVIOUS])


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets, live = flat()
    checkpoint.write(tmp_path, TENSORS, offsets, live, {"epoch": "1"})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(Broken, match="No space left on device") as caught:
        checkpoint.write(tmp_path, TENSORS, offsets, live, {"epoch": "2"})
    assert (caught.value.code, caught.value.fix.endswith(f"look at the disk of {tmp_path}")) == (
        "checkpoint-failed",
        True,
    )
    with safe_open(tmp_path / checkpoint.NAME, "np") as file:
        assert file.metadata() == {"epoch": "1"}
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME]


@pytest.mark.parametrize("length", range(8))
def test_data_begins_at_a_multiple_of_eight(length: int) -> None:
    header = tensor_file.write_header([("w" * (length + 1), "F32", [2])], {})
    assert len(header) % 8 == 0 and int.from_bytes(header[:8], "little") == len(header) - 8
    assert len(header.rstrip(b" ")) > len(header) - 8

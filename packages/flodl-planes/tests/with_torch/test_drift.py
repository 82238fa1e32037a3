"""The distance between a rank's model and the average that replaced it."""

from __future__ import annotations

import math

import pytest
import torch

from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.segment import Segment
from flodl_planes.rank.drift import Drift
from flodl_wire.plane_messages import TensorSpec

SPECS = [
    TensorSpec("w", [3], "F32", "param"),
    TensorSpec("h", [2], "BF16", "param"),
    TensorSpec("n", [1], "I64", "buffer"),
]


def drift() -> tuple[Drift, torch.Tensor, torch.Tensor]:
    layout = lay_out(SPECS)
    live = Segment.create("live", layout.total_bytes)
    w = torch.frombuffer(live.buffer, dtype=torch.float32, count=3, offset=layout.offsets[0])
    h = torch.frombuffer(live.buffer, dtype=torch.bfloat16, count=2, offset=layout.offsets[1])
    return Drift(layout, live.buffer), w, h


def test_it_is_the_norm_of_the_move_over_the_norm_of_the_average() -> None:
    found, w, h = drift()
    w[:], h[:] = torch.tensor([1.0, 2, 3]), torch.tensor([1.0, 1])
    for _ in range(2):  # its memory is used again
        found.begin()
        before = torch.cat([w, h.float()])
        w += 2
        h *= 2
        after = torch.cat([w, h.float()])
        assert found.end() == pytest.approx(float((before - after).norm() / after.norm()), rel=1e-5)


def test_nothing_at_all_has_not_drifted_and_what_is_not_finite_has_no_figure() -> None:
    found, w, _ = drift()
    found.begin()
    assert found.end() == 0.0
    w[0] = math.nan
    assert found.end() is None

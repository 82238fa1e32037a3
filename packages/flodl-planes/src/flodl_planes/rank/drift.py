"""How far a rank had gone its own way when an average came in: what the cadence's guards watch (reference §5.1,
§6.10)."""

from __future__ import annotations

import math
from typing import Any

import torch

from flodl_planes.plane.layout import MEAN, Layout
from flodl_planes.rank.flat import section_of, summed_in

NOTHING = 1e-10  # a norm below it divides nothing (the reference's bound)


class Drift:
    """‖before − after‖ / ‖after‖ over everything that is averaged. Holds a copy of the model, kept from round to
    round."""

    def __init__(self, layout: Layout, live: Any) -> None:
        self._parts = [section_of(live, section) for section in layout.sections if section.op == MEAN]
        self._before = [torch.empty_like(part) for part in self._parts]

    def begin(self) -> None:
        """The model as it is now is what the average will be compared with."""
        for before, part in zip(self._before, self._parts, strict=True):
            before.copy_(part)

    def end(self) -> float | None:
        """The average is in. None when it is not finite, 0.0 when it is nothing."""
        moved = size = 0.0
        for before, part in zip(self._before, self._parts, strict=True):
            moved += norm(before.sub_(part)) ** 2
            size += norm(part) ** 2
        return relative(moved, size)


def relative(moved: float, size: float) -> float | None:
    """√moved / √size of two sums of squares; None when one is not finite, 0.0 when there is nothing to move."""
    if not (math.isfinite(moved) and math.isfinite(size)):
        return None
    return math.sqrt(moved) / math.sqrt(size) if math.sqrt(size) > NOTHING else 0.0


def norm(part: torch.Tensor) -> float:
    """‖part‖."""
    return float(torch.linalg.vector_norm(part, dtype=summed_in(part)))

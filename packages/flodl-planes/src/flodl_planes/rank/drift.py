"""How far a rank had gone its own way when an average came in: what the cadence's guards watch (reference §5.1,
§6.10)."""

from __future__ import annotations

import math
from typing import Any

import torch

from flodl_planes.plane.layout import MEAN, Layout
from flodl_wire.plane_messages import Section

DTYPES = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "F16": torch.float16}
NOTHING = 1e-10  # a norm below it divides nothing (the reference's bound)


class Drift:
    """‖before − after‖ / ‖after‖ over everything that is averaged. Holds a copy of the model, kept from round to
    round."""

    def __init__(self, layout: Layout, live: Any) -> None:
        self._parts = [_part(live, section) for section in layout.sections if section.op == MEAN]
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
        if not (math.isfinite(moved) and math.isfinite(size)):
            return None
        return math.sqrt(moved) / math.sqrt(size) if math.sqrt(size) > NOTHING else 0.0


def _part(live: Any, section: Section) -> torch.Tensor:
    dtype = DTYPES[section.dtype]
    if isinstance(live, torch.Tensor):
        return live[section.offset : section.offset + section.elements * dtype.itemsize].view(dtype)
    return torch.frombuffer(live, dtype=dtype, count=section.elements, offset=section.offset)


def norm(part: torch.Tensor) -> float:
    """‖part‖; half precision is summed in float32."""
    wide = part.dtype if part.dtype is torch.float64 else torch.float32
    return float(torch.linalg.vector_norm(part, dtype=wide))

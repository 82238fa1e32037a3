"""Is this rank's model still made of numbers? One sum over the buffer tells; only then is the culprit looked for."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from flodl_planes.plane.layout import MEAN, Layout
from flodl_planes.rank.flat import DTYPES, piece, section_of, summed_in
from flodl_wire.plane_messages import TensorSpec


class Finite:
    """Over the floats of a live buffer, or of a flat tensor on a device. It costs what reading memory costs: 4 ms for
    100 MB.
    """

    def __init__(self, layout: Layout, tensors: list[TensorSpec], live: Any) -> None:
        self._parts = [section_of(live, section) for section in layout.sections if section.op == MEAN]
        self._tensors = tensors
        self._offsets = layout.offsets
        self._live = live

    def culprit(self) -> str:
        """The first tensor that holds an infinity or no number; "" for none."""
        if all(bool(torch.isfinite(part.sum(dtype=summed_in(part)))) for part in self._parts):
            return ""
        for spec, offset in zip(self._tensors, self._offsets, strict=True):
            dtype = DTYPES[spec.dtype]
            if dtype.is_floating_point and not bool(
                torch.isfinite(piece(self._live, dtype, offset, prod(spec.shape))).all()
            ):
                return spec.name
        return ""  # a sum too large for its dtype, of numbers that are none

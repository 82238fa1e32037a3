"""The outer optimizer: what is made of an average before everybody gets it (docs/protocol.md, C-35). Pure numpy.

The ranks' average says where the model should go; ``difference = average − last consensus``. The plain average goes
there. A *slow momentum* (Wang et al., SlowMo, 2020) or *Nesterov* step (DiLoCo, Douillard et al., 2023: learning rate
0.7, momentum 0.9) takes the difference for a gradient, with the sign turned, and keeps a memory of where averages have
been going, so that rounds may be rarer for the same quality.

    m ← momentum · m + difference
    nesterov:       consensus ← consensus + lr · (difference + momentum · m)
    slow_momentum:  consensus ← consensus + lr · m

which is ``torch.optim.SGD(lr, momentum, nesterov=…)`` on ``−difference``. Buffers (BatchNorm's statistics) are averaged
plainly: a momentum could drive a variance below zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.layout import MEAN, MEANS, Chunk, Layout, lay_out
from flodl_wire.faults import Refused
from flodl_wire.plane_messages import OUTERS, TensorSpec

DEFAULTS: dict[str, tuple[float, float]] = {  # lr, momentum
    "nesterov": (0.7, 0.9),  # DiLoCo's
    "slow_momentum": (1.0, 0.7),  # SlowMo's for its local SGD
}


class OuterOptimizer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`kind` is one of OUTERS."""

    kind: str
    lr: float
    momentum: float

    @property
    def restarts_inner(self) -> bool:
        """Whether ranks begin each window with a fresh optimizer (the reference does it under Nesterov)."""
        return self.kind == "nesterov"

    def step(self, difference: NDArray[Any], memory: NDArray[Any], out: NDArray[Any], room: NDArray[Any]) -> None:
        """One step over a piece of the model. `difference` becomes what to add to the consensus; `memory` (kept) is m
        before, `out` m after, `room` scratch; all of one dtype and size.
        """
        kind = difference.dtype.type
        np.multiply(memory, kind(self.momentum), out=out)
        np.add(out, difference, out=out)
        if self.kind == "nesterov":
            np.multiply(out, kind(self.momentum), out=room)
            np.add(difference, room, out=difference)
            np.multiply(difference, kind(self.lr), out=difference)
        else:
            np.multiply(out, kind(self.lr), out=difference)


def read_outer(terms: Mapping[str, Any]) -> OuterOptimizer | None:
    """Terms.outer. Raises Refused naming what is wrong with it; None when it is empty."""
    if not terms:
        return None
    try:
        outer = msgspec.convert(dict(terms), OuterOptimizer)
    except msgspec.ValidationError as err:
        raise _refuse(str(err)) from None
    if outer.kind not in OUTERS:
        raise _refuse(f"there is no {outer.kind!r}")
    if not (0 < outer.lr < np.inf and 0 <= outer.momentum < 1):
        raise _refuse(f"lr is {outer.lr}, momentum {outer.momentum}")
    return outer


def _refuse(why: str) -> Refused:
    fix = f"outer is one of {', '.join(OUTERS)}, its lr above 0, its momentum from 0 to below 1"
    return Refused("bad-outer", "cannot use the outer optimizer", why, fix)


def places(tensors: Sequence[TensorSpec], layout: Layout) -> dict[str, tuple[slice, TensorSpec]]:
    """Of each averaged parameter, by name: its bytes in a buffer of the sum layout."""
    starts: dict[str, tuple[int, int]] = {}  # dtype → where its section begins, live and summed
    for chunk in layout.chunks:
        if chunk.op == MEAN:
            starts.setdefault(chunk.dtype, (chunk.live_offset, chunk.sum_offset))
    found = {}
    for tensor, offset in zip(tensors, lay_out(tensors).offsets, strict=True):
        if tensor.kind == "param" and tensor.dtype in starts:
            (live, summed), (narrow, wide) = starts[tensor.dtype], MEANS[tensor.dtype]
            first = summed + (offset - live) // narrow * wide
            found[tensor.name] = (slice(first, first + prod(tensor.shape) * wide), tensor)
    return found


def learned(tensors: Sequence[TensorSpec], layout: Layout) -> list[int]:
    """How many elements at the beginning of each chunk are parameters; the rest are buffers (parameters come first in
    every section: C-3).
    """
    parameters = dict.fromkeys(MEANS, 0)
    for tensor in tensors:
        if tensor.kind == "param" and tensor.dtype in MEANS:
            parameters[tensor.dtype] += prod(tensor.shape)
    return [_leading(chunk, parameters) if chunk.op == MEAN else 0 for chunk in layout.chunks]


def _leading(chunk: Chunk, left: dict[str, int]) -> int:
    here = min(left[chunk.dtype], chunk.elements)
    left[chunk.dtype] -= here
    return here

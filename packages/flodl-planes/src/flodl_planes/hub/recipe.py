"""How the averages of this run are made, as its first rank's hello says, and the state that this needs."""

from __future__ import annotations

import contextlib

import numpy as np
from numpy.typing import NDArray

from flodl_planes.hub.next_consensus import NextConsensus
from flodl_planes.plane.layout import Layout
from flodl_planes.plane.outer import OuterOptimizer, read_outer
from flodl_wire.faults import Refused
from flodl_wire.plane_messages import WIRES, RankHello


class Recipe:
    """A world whose other ranks say something else, or whose terms are wrong, is refused by the coordinator before its
    first round. Raises Broken for a layout against the rules.
    """

    def __init__(self, hello: RankHello) -> None:
        self.layout = Layout.of_sections(hello.sections)
        self.outer: OuterOptimizer | None = None
        self._tensors = hello.tensors
        self._wire = hello.terms.wire if hello.terms.wire in WIRES else "float32"
        self._made: NextConsensus | None = None
        with contextlib.suppress(Refused):
            self.outer = read_outer(hello.terms.outer)

    def making(self, average: NDArray[np.uint8]) -> NextConsensus | None:
        """What makes more of an average than an average, in runs that ask for it; the same at every call. `average`
        (the live layout): where the first consensus lies.
        """
        if self._made is None and (self._wire != "float32" or self.outer):
            self._made = NextConsensus(self.layout, self._tensors, self._wire, self.outer, average)
        return self._made

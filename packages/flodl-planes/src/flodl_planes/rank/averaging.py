"""How averages travel and what is made of them, as a user asks for it: the Trainer's `wire`, `outer`, `outer_lr` and
`outer_momentum`, checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flodl_planes.plane.outer import DEFAULTS
from flodl_planes.rank.refusal import refuse
from flodl_wire.plane_messages import OUTERS, WIRES


@dataclass(frozen=True)
class Averaging:
    """None leaves the default of that outer optimizer."""

    wire: str = "float32"
    outer: str | None = None
    lr: float | None = None
    momentum: float | None = None

    def __post_init__(self) -> None:
        """Raises Refused naming the first argument that cannot be meant."""
        if self.wire not in WIRES:
            raise refuse("wire", self.wire, "it is how models travel between hosts", f"use one of {', '.join(WIRES)}")
        if self.outer is not None and self.outer not in OUTERS:
            fix = f"use one of {', '.join(OUTERS)}, or leave it out for the plain average"
            raise refuse("outer", self.outer, "there is no such outer optimizer", fix)
        self._number("outer_lr", self.lr, "above 0", lambda value: 0 < value < math.inf)
        self._number("outer_momentum", self.momentum, "from 0 to below 1", lambda value: 0 <= value < 1)

    def _number(self, name: str, value: object, fits: str, good: Callable[[float], bool]) -> None:
        if value is None:
            return
        if self.outer is None:
            raise refuse(name, value, "it belongs to an outer optimizer", 'name one, e.g. outer="nesterov"')
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not good(value):
            usual = DEFAULTS[self.outer][0 if name == "outer_lr" else 1]
            raise refuse(name, value, f"it must be a number {fits}", f"the usual one is {usual}")

    def as_outer(self) -> dict[str, Any]:
        """The outer optimizer as it travels in `Terms.outer`; empty for the plain average."""
        if self.outer is None:
            return {}
        lr, momentum = DEFAULTS[self.outer]
        return {
            "kind": self.outer,
            "lr": float(lr if self.lr is None else self.lr),
            "momentum": float(momentum if self.momentum is None else self.momentum),
        }

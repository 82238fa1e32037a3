"""How an argument of the Trainer is refused, and what counts as a number there."""

from __future__ import annotations

import math

from flodl_wire.faults import Refused


def refuse(argument: str, value: object, why: str, fix: str = "") -> Refused:
    """A refusal of one of the Trainer's arguments."""
    return Refused("bad-argument", f"cannot train with {argument}={_short(value)}", why, fix)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: object) -> str:
    plain = (int, float, str, list, tuple, bool, type(None))
    text = repr(value) if isinstance(value, plain) else f"{type(value).__name__}(…)"
    text = " ".join(text.split())  # what stands in a list may describe itself in many lines
    return text if len(text) <= 60 else text[:57] + "…"

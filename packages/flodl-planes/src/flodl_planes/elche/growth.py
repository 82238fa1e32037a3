"""When averaging takes too large a share of a window, the window grows; it never shrinks for freshness."""

from __future__ import annotations

import math

from flodl_planes.elche.settings import GROWTH_STEP_CAP, WARMUP_MARGIN, Settings


def overhead(anchor: int, anchor_ms: float, sync_ms: float, fill_ms: float) -> float:
    """The share of the anchor's window that goes to averaging and to waiting for its first batch."""
    fixed = max(0.0, sync_ms) + max(0.0, fill_ms)
    whole = anchor * anchor_ms + fixed
    return fixed / whole if whole > 0 else 0.0


def proposal(settings: Settings, anchor: int, share: float, *, warmup: bool) -> int | None:
    """The anchor to grow to for an overhead of `share`, or None."""
    target = settings.target
    if share <= target * (WARMUP_MARGIN if warmup else 1.0):
        return None
    scale = min(share / target, GROWTH_STEP_CAP)
    grown = min(max(math.ceil(anchor * scale), settings.floor), settings.max_anchor)
    return grown if grown > anchor else None

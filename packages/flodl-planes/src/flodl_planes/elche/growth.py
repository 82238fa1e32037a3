"""When averaging takes too large a share of a window, the window grows; it never shrinks for freshness.

What an average costs is measured where it costs most: at the rank at the end of the slowest road, with all that it
stands still for it (coordinator/costs.py). So the window a link needs follows from the link, whatever its rate and its
delay.
"""

from __future__ import annotations

import math

from flodl_planes.elche.settings import GROWTH_STEP_CAP, LEAP, WARMUP_MARGIN, Settings


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
    grown = max(math.ceil(anchor * scale), settings.floor)
    if settings.max_anchor is not None:
        grown = min(grown, settings.max_anchor)
    return grown if grown > anchor else None


def wanted(settings: Settings, anchor_ms: float, sync_ms: float, fill_ms: float) -> int:
    """The smallest anchor whose overhead is within the target; ours."""
    fixed = max(0.0, sync_ms) + max(0.0, fill_ms)
    if anchor_ms <= 0:
        return 1
    return max(1, math.ceil(fixed * (1 - settings.target) / (settings.target * anchor_ms)))


def leap(settings: Settings, anchor: int, largest: int) -> int | None:
    """Where the doublings begin when the link asks for an anchor of `largest`: a 64th of it, or None when `anchor` is
    there already. Ours.
    """
    start = -(-largest // LEAP)
    if settings.max_anchor is not None:
        start = min(start, settings.max_anchor)
    return start if start > anchor else None

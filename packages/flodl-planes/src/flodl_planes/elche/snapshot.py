"""The controller's state as JSON for a checkpoint, and back (reference §6.13).

Knobs are the user's and never come from a snapshot; the anchor keeps to their bounds. Speeds belong to *places* (a host
and its device): where a place is there again its trust window begins with one sample, whatever its rank is now. Only
when all are there does the controller go on where it was; else it measures first, as a new run does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl_planes.elche.cadence import Cadence
from flodl_planes.elche.settings import STABLE_AFTER


def take(cadence: Cadence, places: Mapping[int, str]) -> dict[str, Any]:
    """`places`: rank → its place, in words."""
    speeds = {places[rank]: round(trust.smoothed, 6) for rank, trust in cadence.trust.items() if trust.smoothed > 0}
    anchor_place = places[cadence.anchor_rank] if cadence.anchor_rank is not None else None
    return {
        "anchor": cadence.anchor,
        "anchor_place": anchor_place,
        "phase": cadence.phase,
        "calibrations": cadence.calibrations,
        "ms": speeds,
    }


def restore(cadence: Cadence, saved: Mapping[str, Any], places: Mapping[int, str]) -> None:
    """Nothing of a snapshot that makes no sense is taken: it came from a file."""
    anchor, speeds = saved.get("anchor"), saved.get("ms")
    if not isinstance(anchor, int) or not isinstance(speeds, dict):
        return
    settings = cadence.settings
    cadence.anchor = max(anchor, settings.floor)
    if settings.max_anchor is not None:  # else the link had asked for it
        cadence.anchor = min(cadence.anchor, settings.max_anchor)
    for rank, trust in cadence.trust.items():
        ms = speeds.get(places[rank])
        if isinstance(ms, (int, float)):
            trust.push(float(ms))
    if not all(trust.smoothed > 0 for trust in cadence.trust.values()):
        for trust in cadence.trust.values():
            trust.clear()
        return
    found = saved.get("calibrations")
    cadence.calibrations = max(1, min(found if isinstance(found, int) else 1, STABLE_AFTER))
    again = [rank for rank in cadence.trust if places[rank] == saved.get("anchor_place")]
    cadence.anchor_rank = again[0] if again else max(cadence.trust, key=cadence.smoothed)
    cadence.retarget()

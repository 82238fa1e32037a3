"""What averages cost a run once its cadence has settled, by its metrics.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

LEARNT = 10  # windows in which a cadence has to find its link


class Settled(NamedTuple):
    """`share`: of the time behind the tenth window, what the ranks' averages took. `windows`: how many that are."""

    share: float
    windows: int
    seconds: float


def settled(run: Path) -> Settled:
    """Of the run in the folder `run`, which must have done at least two windows behind the tenth."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rounds = [row for row in map(json.loads, lines) if row["kind"] == "round"]
    behind = [row for row in rounds if row["rounds"] >= LEARNT]
    assert len(behind) >= 3, [(row["rounds"], row["t"]) for row in rounds]
    seconds = float(behind[-1]["t"] - behind[0]["t"])
    spent: float = sum(row["sync_ms"] for row in behind[1:]) / 1e3
    return Settled(spent / seconds, len(behind) - 1, seconds)

"""What the figures of a run come to, and its curves where nobody watched. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flodl_window.aftermath.run_files import Json


@dataclass
class Alone:
    """What the same samples would have cost the fastest rank alone, by what it did while busy."""

    rank: int
    host: str
    samples_per_s: float
    wall_s: float
    times: float  # how many times longer than together


def alone(result: Json) -> Alone | None:
    """None where there is nothing to compare: no figures, or one rank only."""
    ranks = [rank for rank in rows(result.get("ranks")) if number(rank.get("samples_per_s"))]
    samples, wall = number(result.get("samples")), number(result.get("wall_s"))
    if len(ranks) < 2 or not samples or not wall:
        return None
    best = max(ranks, key=lambda rank: number(rank.get("samples_per_s")) or 0.0)
    rate = number(best.get("samples_per_s")) or 1.0
    return Alone(int(best.get("rank") or 0), str(best.get("host", "")), rate, samples / rate, samples / rate / wall)


def document(history: Json, metrics: list[Json], result: Json) -> Json:
    """The document that the charts draw: history.json when it is there, else what metrics.jsonl has, complete in its
    keys either way.
    """
    blank: Json = {"run": "", "mode": "", "now": 0, "totals": {"t": []}, "ranks": {"t": [], "rate": {}}}
    blank |= {"epochs": {"t": [], "epoch": [], "eval": {}}, "timeline": [], "hosts": {}, "tails": {}, "marks": []}
    if history and all(isinstance(history.get(key), type(value)) for key, value in blank.items() if key != "now"):
        return {**blank, **history, "state": None, "tails": {}, "marks": []}  # those stand in the page as text
    epochs = [row for row in metrics if row.get("kind") == "epoch"] or rows(result.get("epochs"))
    told: Json = {"t": [], "epoch": [], "loss": [], "wall_s": [], "samples": [], "eval": {}}
    names = list(dict.fromkeys(name for row in epochs for name in (row.get("eval") or {})))
    told["eval"] = {str(name): [] for name in names[:24]}
    at = 0.0
    for row in epochs[-1000:]:
        at = number(row.get("t")) or at + (number(row.get("wall_s")) or 0.0)
        told["t"].append(round(at, 3))
        for key in ("epoch", "loss", "wall_s", "samples"):
            told[key].append(number(row.get(key)))
        for name, column in told["eval"].items():
            column.append(number((row.get("eval") or {}).get(name)))
    return {**blank, "run": str(result.get("run", "")), "mode": str(result.get("mode", "")), "now": at, "epochs": told}


def rows(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < float("inf") else None

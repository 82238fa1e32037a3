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
        return blank | _drawable(history)  # tails and marks stand in the page as text
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


def _drawable(history: Json) -> Json:
    """Its tables, without what a broken file may have in the place of a table or a figure."""
    hosts = {name: _table(load) for name, load in history["hosts"].items() if isinstance(load, dict)}
    epochs, ranks = history["epochs"], history["ranks"]
    return {
        "run": str(history["run"]),
        "mode": str(history["mode"]),
        "now": number(history.get("now")) or 0,
        "opened_at": number(history.get("opened_at")),
        "state": None,
        "totals": _table(history["totals"]),
        "ranks": {**_table(ranks), "rate": _columns(ranks.get("rate"))},
        "epochs": {"epoch": [], **_table(epochs), "eval": _columns(epochs.get("eval"))},
        "hosts": hosts,
        "timeline": [_lanes(row) for row in rows(history["timeline"])],
    }


def _lanes(row: Json) -> Json:
    given = row.get("rows")
    lanes = [each for each in given if isinstance(each, list)] if isinstance(given, list) else []
    spent = [[number(cell) or 0 for cell in lane] for lane in lanes]
    return {"t": number(row.get("t")) or 0, "dt": number(row.get("dt")) or 0, "rows": spent}


def _table(value: Json) -> Json:
    return {"t": [], **_columns(value)}


def _columns(value: Any) -> dict[str, list[float | None]]:
    found = value if isinstance(value, dict) else {}
    return {name: [number(cell) for cell in column] for name, column in found.items() if isinstance(column, list)}


def rows(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < float("inf") else None

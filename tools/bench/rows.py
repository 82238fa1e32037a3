"""What every benchmark shares: peers that take turns, medians, the table and the file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "bench"


def interleaved(ours: Callable[[], float], peer: Callable[[], float], times: int) -> tuple[float, float, float]:
    """Both, `times` times in turn: median of ours, of the peer's, and the median of peer / ours of each pair.

    For figures where less is better (seconds), so that a ratio above 1 says that ours is better.
    """
    pairs = [(ours(), peer()) for _ in range(times)]
    median = statistics.median
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(b / a for a, b in pairs)


def row(case: str, ours: float, peer: float, ratio: float, **more: Any) -> dict[str, Any]:
    """`at_least`: the ratio promised for this case, where there is one. `unit`: of ours and peer."""
    return {"case": case, "ours": ours, "peer": peer, "ratio": ratio, **more}


def report(name: str, rows: Sequence[dict[str, Any]]) -> bool:
    """Write build/bench/NAME.json and print the table; False when a promised ratio is not reached."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(list(rows), indent=1) + "\n")
    width = max([len(str(each["case"])) for each in rows], default=4)
    print(f"\n{name}\n{'case':<{width}}  {'ours':>10}  {'peer':>10}  {'ratio':>7}  promised")
    kept = True
    for each in rows:
        least, unit = each.get("at_least"), each.get("unit", "")
        good = least is None or each["ratio"] >= least
        kept = kept and good
        promised = "" if least is None else f">= {least:g}" + ("" if good else "  MISSED")
        ours, peer = (f"{each[key]:.4g}{unit and ' ' + unit}" for key in ("ours", "peer"))
        print(f"{each['case']:<{width}}  {ours:>10}  {peer:>10}  {each['ratio']:>7.2f}  {promised}")
    return kept

"""The tables of docs/quality.md, between two marks; everything else in that page is written by people."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tools.quality.contenders import ALONE, CONTENDERS, WORKS, Contender, Metric, Work
from tools.quality.paired import Comparison, compare, sentence, spread

BETWEEN = re.compile(r"(<!-- measured -->\n).*?(<!-- end measured -->)", re.DOTALL)
Row = dict[str, Any]  # as runs.run gives it


@dataclass(frozen=True)
class Pairing:
    """One row of a table: `contender` against `peer`."""

    contender: Contender
    peer: str
    found: Comparison

    @property
    def kept(self) -> bool:
        """A run alone is there to be looked at; the rule is for worlds."""
        return self.found.kept or not self.contender.hosts


def figures(rows: Sequence[Row], work: Work, metric: Metric) -> dict[str, dict[int, float]]:
    """Contender → seed → the metric after the last epoch."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["work"] == work.name:
            found.setdefault(row["contender"], {})[row["seed"]] = row["metrics"][metric.name]
    return found


def pairings(rows: Sequence[Row], work: Work, metric: Metric) -> list[Pairing]:
    """In the order of CONTENDERS."""
    found = figures(rows, work, metric)
    higher = metric.higher_is_better
    return [
        Pairing(
            contender, peer,
            compare(found[contender.name], found[peer], found[contender.against[0]], higher_is_better=higher),
        )
        for contender in CONTENDERS
        if contender.against and contender.name in found and contender.against[0] in found
        for peer in contender.against
        if peer in found
    ]  # fmt: skip


def table(rows: Sequence[Row], work: Work, metric: Metric) -> str:
    """One metric's table; "" when there are no runs alone to compare with."""
    alone = figures(rows, work, metric).get(ALONE)
    if not alone:
        return ""
    text = [
        f"### {work.name}: {metric.text}", "",
        f"{work.text[0].upper()}{work.text[1:]}. Seeds: {len(alone)}. {ALONE.capitalize()}:"
        f" {statistics.mean(alone.values()):.4f}, spread {spread(alone):.4f}."
        f" {'More' if metric.higher_is_better else 'Less'} is better.", "",
        "| | against | averages | mean | difference | ± | |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for each in pairings(rows, work, metric):
        found, name = each.found, each.contender.name
        text.append(
            f"| {name} | {each.peer} | {averages(rows, work, name)} | {found.mean:.4f} | {found.difference:+.4f}"
            f" | {found.deviation:.4f} | {sentence(found, judged=bool(each.contender.hosts))} |"
        )
    return "\n".join(text) + "\n"


def averages(rows: Sequence[Row], work: Work, name: str) -> str:
    """How many a run of this contender took, in the middle of its seeds."""
    counts = [row["rounds"] for row in rows if (row["work"], row["contender"]) == (work.name, name)]
    return f"{statistics.median_low(counts)}"


def measured(rows: Sequence[Row], circumstances: str) -> str:
    """What stands between the marks."""
    tables = (table(rows, work, metric) for work in WORKS for metric in work.metrics)
    return "\n".join([circumstances, "", *filter(None, tables)])


def with_measured(page: str, text: str) -> str:
    """The page with this between its marks. Raises ValueError when it has none."""
    if not BETWEEN.search(page):
        raise ValueError("the page has no <!-- measured --> … <!-- end measured -->")
    return BETWEEN.sub(lambda match: f"{match.group(1)}{text}{match.group(2)}", page)

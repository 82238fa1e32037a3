"""The tables of docs/quality.md, between two marks; everything else in that page is written by people."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import Any

from tools.quality.contenders import ALONE, CONTENDERS, WORKS, Work
from tools.quality.paired import Comparison, compare, sentence, spread

BETWEEN = re.compile(r"(<!-- measured -->\n).*?(<!-- end measured -->)", re.DOTALL)
Row = dict[str, Any]  # as runs.run gives it


def metrics(rows: Sequence[Row], work: Work) -> dict[str, dict[int, float]]:
    """Contender → seed → metric."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["work"] == work.example:
            found.setdefault(row["contender"], {})[row["seed"]] = row["metric"]
    return found


def comparisons(rows: Sequence[Row], work: Work) -> list[tuple[str, str, Comparison]]:
    """(contender, whom it is compared with, what came out), in the order of CONTENDERS."""
    found = metrics(rows, work)
    return [
        (contender.name, peer, compare(found[contender.name], found[peer], found[ALONE],
                                       higher_is_better=work.higher_is_better))
        for contender in CONTENDERS
        if contender.hosts and contender.name in found
        for peer in contender.against
        if peer in found
    ]  # fmt: skip


def table(rows: Sequence[Row], work: Work) -> str:
    """One work's table; "" when there are no runs alone to compare with."""
    alone = metrics(rows, work).get(ALONE)
    if not alone:
        return ""
    mean = statistics.mean(alone.values())
    text = [
        f"### {work.example}", "", f"{work.text[0].upper()}{work.text[1:]}. Seeds: {len(alone)}. {ALONE.capitalize()}: "
        f"{mean:.4f}, spread {spread(alone):.4f}.", "",
        "| | against | mean | difference | ± | |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    text += [
        f"| {name} | {peer} | {each.mean:.4f} | {each.difference:+.4f} | {each.deviation:.4f} | {sentence(each)} |"
        for name, peer, each in comparisons(rows, work)
    ]
    return "\n".join(text) + "\n"


def measured(rows: Sequence[Row], circumstances: str) -> str:
    """What stands between the marks."""
    return "\n".join([circumstances, "", *filter(None, (table(rows, work) for work in WORKS))])


def with_measured(page: str, text: str) -> str:
    """The page with this between its marks. Raises ValueError when it has none."""
    if not BETWEEN.search(page):
        raise ValueError("the page has no <!-- measured --> … <!-- end measured -->")
    return BETWEEN.sub(lambda match: f"{match.group(1)}{text}{match.group(2)}", page)

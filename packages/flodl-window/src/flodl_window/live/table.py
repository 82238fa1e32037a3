"""Columns over time in bounded memory: when a table is full, each two neighbouring rows become one.

So a run of a minute is kept as it was and a run of a week with the detail that a screen can show. A column that comes
later starts with gaps; a value that is missing is a gap (None outside, NaN inside).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

GAP = math.nan
LEAST_ROWS = 32


class Table:
    """`rows` are kept at most, and at most `columns` beside the time (more names are left out): at most
    8 · rows · (columns + 1) bytes.
    """

    def __init__(self, rows: int, columns: int = 64) -> None:
        self.rows = max(LEAST_ROWS, rows // 2 * 2)
        self.most = columns
        self.t = array("d")
        self.columns: dict[str, array[float]] = {}
        self._stride = 1  # readings that one row stands for
        self._waiting: list[tuple[float, Mapping[str, float | None]]] = []

    def __len__(self) -> int:
        return len(self.t)

    def add(self, t: float, values: Mapping[str, float | None]) -> None:
        """A reading at `t`; time does not run backwards."""
        self._waiting.append((t, values))
        if len(self._waiting) < self._stride:
            return
        if len(self.t) >= self.rows:
            self._fold()
            return  # a row stands for twice as many readings now: these are half of the next one
        waiting, self._waiting = self._waiting, []
        names = dict.fromkeys(name for _, read in waiting for name in read)
        self.t.append(waiting[-1][0])
        for name in names:
            if name not in self.columns and len(self.columns) < self.most:
                self.columns[name] = array("d", [GAP]) * (len(self.t) - 1)
        for name, column in self.columns.items():
            column.append(_mean([_finite(read.get(name)) for _, read in waiting]))

    def fit(self, rows: int) -> None:
        """Be content with fewer rows from now on."""
        self.rows = max(LEAST_ROWS, min(self.rows, rows // 2 * 2))
        while len(self.t) > self.rows:
            self._fold()

    def document(self) -> dict[str, list[float | None]]:
        """`t` and every column as JSON has them, a gap as null, with the reading that still waits for its row."""
        made: dict[str, list[float | None]] = {"t": [round(t, 3) for t in self.t]}
        made.update({name: [_short(value) for value in column] for name, column in self.columns.items()})
        if self._waiting:
            made["t"].append(round(self._waiting[-1][0], 3))
            for name in self.columns:
                made[name].append(_short(_mean([_finite(read.get(name)) for _, read in self._waiting])))
        return made

    def last(self, name: str) -> float | None:
        """The newest value of a column."""
        for _, read in reversed(self._waiting):
            if name in read:
                return read[name]
        column = self.columns.get(name)
        return _short(column[-1]) if column else None

    def _fold(self) -> None:
        """Halve the rows; the last one of an odd number stays by itself."""
        self._stride *= 2
        self.t = array("d", (self.t[min(at + 1, len(self.t) - 1)] for at in range(0, len(self.t), 2)))
        for name, column in self.columns.items():
            self.columns[name] = array("d", (_mean(list(column[at : at + 2])) for at in range(0, len(column), 2)))


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else GAP


def _mean(values: list[float]) -> float:
    there = [value for value in values if not math.isnan(value)]
    return sum(there) / len(there) if there else GAP


def _short(value: float) -> float | None:
    """Six digits: what a chart can show, and a third of the bytes."""
    return None if math.isnan(value) else float(f"{value:.6g}")

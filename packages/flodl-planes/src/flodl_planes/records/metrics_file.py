"""runs/<id>/metrics.jsonl: one JSON object a line, flushed at once; for machines that watch a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TextIO

NAME = "metrics.jsonl"


class MetricsFile:
    """Appends rows. A disk that takes no more costs the rows and one sentence, never the run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file: TextIO | None = None
        self._given_up = False

    def append(self, row: dict[str, Any]) -> str:
        """Write `row`; answers with a sentence for people the first time it cannot, else with nothing."""
        if self._given_up:
            return ""
        try:
            if self._file is None:
                self._file = self.path.open("a", encoding="utf-8")
            self._file.write(json.dumps(row, allow_nan=False) + "\n")
            self._file.flush()
        except (OSError, ValueError) as err:
            self._given_up = True
            why = os.strerror(err.errno) if isinstance(err, OSError) and err.errno else str(err)
            return f"cannot write {self.path}: {why}; the run goes on without it"
        return ""

    def close(self) -> None:
        if self._file is not None and not self._given_up:
            self._file.close()

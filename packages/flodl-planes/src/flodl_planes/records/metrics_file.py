"""runs/<id>/metrics.jsonl: one JSON object a line, flushed at once; for machines that watch a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

NAME = "metrics.jsonl"


class MetricsFile:
    """Appends rows. A disk that takes no more costs the rows of that time and one sentence, never the run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file = -1
        self._torn = False  # the last row is not whole
        self._said = False

    def append(self, row: dict[str, Any]) -> str:
        """Write `row`; answers with a sentence for people the first time it cannot, else with nothing."""
        try:
            line = (json.dumps(row, allow_nan=False) + "\n").encode()
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if self._torn:
                self._torn = os.write(self._file, b"\n") != 1
            written = os.write(self._file, line)
            if written < len(line):
                self._torn = True
                raise OSError(28, os.strerror(28))
        except (OSError, ValueError) as err:
            if self._said:
                return ""
            self._said = True
            why = os.strerror(err.errno) if isinstance(err, OSError) and err.errno else str(err)
            return f"cannot write {self.path}: {why}; the run goes on without it"
        return ""

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

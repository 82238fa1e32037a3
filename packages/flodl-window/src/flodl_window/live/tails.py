"""The last lines of every process, as text that can do no harm: no escapes, no controls, no end of length."""

from __future__ import annotations

import re
from collections import deque

LINES = 60  # of each process, while there are few
ALL_LINES = 4096  # of all processes together
NEW_LINES = 400  # of all processes in one piece of news: it has to fit through an ssh tunnel
WIDTH = 400  # characters of a line
SOURCES = 2048

# CSI and OSC sequences, two-character escapes, what is left of C0 and C1, and marks that turn the direction of writing:
# one that is left open would reach out of the element that isolates it
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[@-_a-z]?|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|[\ud800-\udfff]|[\u202a-\u202e\u2066-\u2069]")


def harmless(text: str, width: int = WIDTH) -> str:
    """`text` without escape sequences and control characters, shortened; what would turn the direction of
    writing is shown as a replacement character.
    """
    text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", _ESCAPES.sub("", text[: 4 * width]))
    return text if len(text) <= width else text[: width - 1] + "…"


class Tails:
    """Lines by source ("node-a:0", "node-a:relay"). `new` holds what came since `take`."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[str]] = {}
        self._new: dict[str, deque[str]] = {}

    def add(self, source: str, lines: list[str]) -> None:
        if source not in self._lines:
            if len(self._lines) >= SOURCES:
                return
            self._lines[source] = deque(maxlen=LINES)
        kept = [harmless(line) for line in lines[-LINES:]]
        self._lines[source].extend(kept)
        self._new.setdefault(source, deque(maxlen=LINES)).extend(kept)

    def take(self) -> dict[str, list[str]]:
        """What is new since the last call; of a flood its end."""
        new, self._new = self._new, {}
        share = max(1, NEW_LINES // max(1, len(new)))
        return {source: list(lines)[-share:] for source, lines in list(new.items())[-NEW_LINES:]}

    def document(self) -> dict[str, list[str]]:
        return {source: list(lines)[-self._share :] for source, lines in self._lines.items()}

    @property
    def _share(self) -> int:
        return max(4, min(LINES, ALL_LINES // max(1, len(self._lines))))

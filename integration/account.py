"""What `fdl why --json` says of a project's last run."""

from __future__ import annotations

import json
from typing import Any, Protocol


class Typed(Protocol):
    """Where `fdl` can be typed: a project, or a cluster."""

    def fdl(self, *words: str) -> Any: ...


def why(made: Typed, run: str = "latest") -> dict[str, Any]:
    """The account, which every run must have."""
    done = made.fdl("why", run, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def first_cause(made: Typed, *words: str) -> dict[str, Any]:
    """The first cause of a run that failed; each of `words` stands in it, and something to try behind it."""
    told = why(made)
    first = told["first"] or {}
    said = f"{first.get('what')} {first.get('why')} {first.get('host')}"
    assert told["end"] == "failed" and all(word in said for word in words), told
    assert told["try"], told
    return told

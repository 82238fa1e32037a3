"""The runs that a served folder has held, by their identities, in order.

A publish writes them down; the window on that box reads them, and so tells a worker that fetched before the last
publish from one that takes its run from elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

DEFAULT_SERVED = "~/.flodl/run"
FILE = ".publish/runs"
KEPT = 1000  # a worker that is a thousand publishes behind is told by the others' run


def served_folder(to: str, project: str) -> Path:
    """`to` as `publish.to` has it ("" for the default), relative to the project's folder."""
    return Path(os.path.normpath(os.path.join(project, os.path.expanduser(to or DEFAULT_SERVED))))  # noqa: PTH111, PTH118


def with_run(served: Path, run: str) -> bytes:
    """The file as it is behind one more publish."""
    return "".join(f"{each}\n" for each in [*runs_of(served), run][-KEPT:]).encode()


def newer_run(runs: Sequence[str], run: str) -> str:
    """The last of `runs`, when `run` is one before it; "" else, as for a run that is not among them."""
    return runs[-1] if run and run in runs and run != runs[-1] else ""


def runs_of(served: Path) -> list[str]:
    """Every run that this folder has held, the one it holds now last; none where nothing was ever published."""
    try:
        return (served / FILE).read_text("ascii", "replace").split()
    except OSError:
        return []

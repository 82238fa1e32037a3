"""Which checkpoint a run goes on from, and whether it may.

    auto          the last run, if it was not finished (its last evaluation counts); else, and where there is none that
                  fits, begin anew
    latest        the last run that left a checkpoint
    ID or path    that one: a run's id, its folder, or a file

A file that is cut short costs a sentence, and the one before it is used.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flodl_planes.records import checkpoint
from flodl_planes.records import cursor as cursors
from flodl_planes.records.cursor import Cursor
from flodl_wire import checkpoints, environ
from flodl_wire.checkpoints import AUTO, LATEST, NEVER
from flodl_wire.faults import Broken, Fault, Refused
from flodl_wire.plane_messages import TensorSpec, Terms


@dataclass
class Found:
    """`path` None: begin anew. `notes` are sentences for people either way."""

    path: Path | None = None
    cursor: Cursor | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def state(self) -> Path | None:
        """The file of optimizer and random streams, if it is there."""
        return self._beside(self.cursor.state_file if self.cursor else "")

    @property
    def outer(self) -> Path | None:
        return self._beside(self.cursor.outer_file if self.cursor else "")

    def _beside(self, name: str) -> Path | None:
        if not name or self.path is None or Path(name).name != name:
            return None
        path = self.path.parent / name
        return path if path.is_file() else None


def wanted(asked: str | None) -> str | None:
    """What to go on from: FLODL_RESUME where it is set (`never`: begin anew), else what the script asks for."""
    said = os.environ.get(environ.RESUME) or asked
    return None if said == NEVER else said


def find(said: str, runs: Path, own: str, terms: Terms, tensors: Sequence[TensorSpec]) -> Found:
    """The checkpoint that `said` means, for a run `own` below `runs`. Raises Refused or Broken, unless it is `auto`."""
    if said not in (AUTO, LATEST):
        return _named(said, runs, terms, tensors)
    notes: list[str] = []
    others = 0  # older runs that do not fit: a line for each would bury the first
    for folder in filter(checkpoints.files_in, checkpoints.runs_of(runs, own)):
        try:
            with checkpoints.advised(folder, runs):
                found = _in(folder, terms, tensors)
        except Fault as fault:
            if said == LATEST:
                raise
            others += bool(notes)
            notes = notes or [str(fault)]
            continue
        notes += _do_not_fit_either(others)
        if said == AUTO and _complete(found, terms):
            return Found(notes=[*notes, f"the last run, {folder.name}, is complete: a new one begins"])
        _not_complete(found, terms)
        return Found(found.path, found.cursor, [*notes, *found.notes])
    if said == LATEST:
        raise checkpoints.none_left(runs)
    notes += _do_not_fit_either(others)
    return Found(notes=[*notes, "there is nothing to resume: a new run begins"] if notes else [])


def _do_not_fit_either(others: int) -> list[str]:
    if not others:
        return []
    return [f"{others} older runs do not fit either" if others > 1 else "an older run does not fit either"]


def _named(said: str, runs: Path, terms: Terms, tensors: Sequence[TensorSpec]) -> Found:
    place = checkpoints.place_of(said, runs)
    with checkpoints.advised(place, runs):
        found = _in(place, terms, tensors) if place.is_dir() else _file(place, terms, tensors)
    _not_complete(found, terms)
    return found


def _complete(found: Found, terms: Terms) -> bool:
    """Nothing is left to train. A run that was killed before its last evaluation came in still has that to do."""
    if found.cursor is None or found.cursor.epoch < terms.epochs:
        return False
    return not (terms.evaluates and found.cursor.owes_evaluation(terms.epochs))


def _not_complete(found: Found, terms: Terms) -> None:
    if found.cursor and _complete(found, terms):
        raise Refused(
            "complete",
            f"cannot resume from {found.path}",
            f"its {found.cursor.epoch} epochs are done, and the script asks for {terms.epochs}",
            "ask for more epochs, or begin anew without resume",
        )


def _in(folder: Path, terms: Terms, tensors: Sequence[TensorSpec]) -> Found:
    """The newest checkpoint of a run's folder that can be used. A model or data that differ are no accident of that one
    file: they are raised at once.
    """
    first: Fault | None = None
    for path in checkpoints.files_in(folder):
        try:
            found = _file(path, terms, tensors)
        except Broken as fault:
            if fault.code != "bad-file":
                raise
            first = first or fault
            continue
        if first:
            found.notes.append(f"{first}; the checkpoint before it is used")
        return found
    raise first or checkpoints.none_in(folder)


def _file(path: Path, terms: Terms, tensors: Sequence[TensorSpec]) -> Found:
    header = checkpoint.read(path)
    cursor = cursors.decode(header.metadata, str(path))
    fault = checkpoint.misfit(header, tensors, path)
    if fault:
        raise fault
    what = f"cannot resume from {path}"
    if cursor.dataset != terms.dataset:
        raise Refused(
            "other-data",
            what,
            f"it was trained on {cursor.dataset:,} samples, the script's data has {terms.dataset:,}",
            "give it the same data, or load the model yourself and begin anew",
        )
    if cursor.seed != terms.seed and cursor.merged:
        raise Refused(
            "other-seed",
            what,
            f"an epoch was interrupted whose order came from seed {cursor.seed}, and the script has seed {terms.seed}",
            f"use seed={cursor.seed}, or begin anew",
        )
    note = _other_outer(cursor, terms)
    return Found(path.absolute(), cursor, [note] if note else [])


def _other_outer(cursor: Cursor, terms: Terms) -> str:
    """A momentum is of use to the kind of outer optimizer that gathered it: for another the cursor loses its file, and
    a sentence says so. Of its own kind it is carried on, whatever has become of lr and momentum.
    """
    was, now = _kind(cursor.terms.get("outer")), _kind(terms.outer)
    if not cursor.outer_file or was == now:
        return ""
    cursor.outer_file = ""
    named = "the checkpoint's outer optimizer" + (f" ({was})" if was else "")
    if not now:
        return f"{named} is gone from the script: from here on averages stay as they are, and its momentum is left out"
    return f"{named} is another than the script's {now}, whose momentum begins with nothing"


def _kind(outer: Any) -> str:
    return str(outer.get("kind", "")) if isinstance(outer, dict) else ""

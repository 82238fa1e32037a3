"""Where a run stood when its average was saved: everything that a later run needs besides the tensors.

It travels as JSON in the checkpoint's own metadata (key `flodl`), so that average and cursor cannot be torn apart: one
rename makes both the newest.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flodl_wire import checkpoints
from flodl_wire.faults import Broken
from flodl_wire.result import EpochResult

KEY = checkpoints.CURSOR
ORDER = "numpy.random.RandomState((seed + epoch) % 2**32).permutation(dataset)"  # docs/protocol.md, C-13


class Cursor(msgspec.Struct, omit_defaults=True):
    """`epoch` epochs are whole; of the next one the positions in `merged` ([start, count] of its permutation) are in.

    `reason`: checkpoint | finished | graceful_shutdown | max_failure_exceeded | single_survivor | all_ranks_lost |
    reduce_stall | run_failed.
    """

    run: str
    mode: str
    reason: str
    epoch: int
    epochs: int
    merged: list[list[int]]
    seed: int
    dataset: int
    batch_size: int
    rounds: int
    world_size: int
    model_sig: str = ""
    skipped: list[list[int]] = []  # of `merged`: done, but left out because their contribution was not finite
    order: str = ORDER
    state_file: str = ""  # beside this one: optimizer, scheduler, scaler, random streams
    state_round: int = 0  # the round they are of
    outer_file: str = ""  # beside this one: the hub's outer optimizer
    elche: dict[str, Any] = {}  # the cadence's snapshot
    terms: dict[str, Any] = {}  # as the ranks agreed on them; for people, but for the kind that `outer_file` is of
    history: list[EpochResult] = []  # of the whole epochs, those of runs before too
    loss_sum: float = 0.0  # of the epoch that is not whole
    loss_samples: int = 0
    wall_s: float = 0.0  # spent on that epoch
    v: int = checkpoints.VERSION

    @property
    def unevaluated(self) -> EpochResult | None:
        """The last whole epoch, if its evaluation was not in when this was saved."""
        return self.history[-1] if self.history and self.history[-1].eval is None else None

    def owes_evaluation(self, epochs: int) -> bool:
        """Whether nothing of `epochs` is left to train, and the last model has not been evaluated."""
        return self.epoch == epochs and self.unevaluated is not None

    @property
    def samples(self) -> int:
        """In the epoch that is not whole."""
        return sum(count for _, count in self.merged)

    def stands(self, epochs: int) -> str:
        """For people, where a run of `epochs` goes on: ``epoch 3, 640 of 1,437 samples of it are done``."""
        if self.owes_evaluation(epochs):
            return "all epochs are done, only the last evaluation is missing"
        done = f", {self.samples:,} of {self.dataset:,} samples of it are done" if self.merged else " begins"
        return f"epoch {self.epoch + 1}{done}"


def remaining(dataset: int, merged: list[list[int]]) -> list[list[int]]:
    """What of an epoch is left to do, as spans in order."""
    spans, at = [], 0
    for start, count in [*sorted(merged), [dataset, 0]]:
        if start > at:
            spans.append([at, start - at])
        at = start + count
    return spans


def first(spans: list[list[int]], samples: int) -> list[list[int]]:
    """The first `samples` of spans that are done one after the other."""
    done = []
    for start, count in spans:
        if samples > 0:
            done.append([start, min(count, samples)])
        samples -= count
    return done


def encode(cursor: Cursor) -> str:
    return msgspec.json.encode(cursor).decode()


def decode(metadata: dict[str, str], name: str) -> Cursor:
    """The cursor in a checkpoint's metadata. Raises Broken (bad-file) where there is none, or one that cannot be, and
    Refused (newer-file) for that of a later flodl.
    """
    what = f"cannot resume from {name}"
    try:
        cursor = msgspec.json.decode(checkpoints.cursor_of(metadata, name), type=Cursor)
    except msgspec.MsgspecError as err:
        raise Broken("bad-file", what, f"where training stood cannot be read: {err}") from None
    if not _possible(cursor):
        raise Broken("bad-file", what, "where training stood cannot be: its numbers contradict each other")
    return cursor


def _possible(cursor: Cursor) -> bool:
    """No run can have written anything else: the spans lie in the epoch, and none of `merged` on another."""
    numbers = (cursor.epoch, cursor.epochs, cursor.dataset, cursor.rounds, cursor.loss_samples)
    if min(numbers) < 0 or any(len(span) != 2 for span in (*cursor.merged, *cursor.skipped)):
        return False
    if any(start < 0 or count < 0 or start + count > cursor.dataset for start, count in cursor.merged + cursor.skipped):
        return False
    return sum(count for _, count in remaining(cursor.dataset, cursor.merged)) + cursor.samples == cursor.dataset

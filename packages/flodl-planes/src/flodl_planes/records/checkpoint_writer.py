"""A thread that writes checkpoints, one at a time, so that nobody who trains waits for a disk."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from flodl_planes.records import checkpoint
from flodl_planes.records import cursor as cursors
from flodl_planes.records.checkpoint import Bytes
from flodl_planes.records.cursor import Cursor
from flodl_wire.faults import Broken, Fault
from flodl_wire.plane_messages import TensorSpec


@dataclass
class Job:
    """What to write. `average` (live layout) and `state` (a whole safetensors file) stay as they are until it is done.
    Without a `state` the last one written is named again.
    """

    cursor: Cursor
    average: Bytes
    state: memoryview | None = None
    outer: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


class CheckpointWriter:
    """Into one folder. `done` is called in the writing thread with the file's path, or with the fault."""

    def __init__(
        self,
        folder: Path,
        tensors: Sequence[TensorSpec],
        offsets: Sequence[int],
        done: Callable[[Path | Fault], None] = lambda outcome: None,
    ) -> None:
        self.folder = folder
        self._tensors, self._offsets = tensors, offsets
        self._done = done
        self._state: tuple[str, int] = ("", 0)  # the last state that was written, and its round
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Write `job` in the thread. Only when not `busy`."""
        self._thread = threading.Thread(target=self._run, args=(job,), name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """True when nothing is being written any more."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.busy

    def _run(self, job: Job) -> None:
        try:
            self._done(self.write(job))
        except Fault as fault:
            self._done(fault)
        except Exception as err:  # a thread's end would leave everybody waiting
            why = f"{type(err).__name__}: {err}"
            self._done(Broken("checkpoint-failed", f"cannot write a checkpoint to {self.folder}", why))

    def write(self, job: Job) -> Path:
        """The same in the caller's thread. Raises Broken (checkpoint-failed); what was written beside it by then is
        removed, for on a full disk the next one needs its room.
        """
        cursor, before, beside = job.cursor, self._state, list[str]()
        try:
            if job.state is not None:
                name = checkpoint.STATE.format(cursor.rounds)
                checkpoint.write_beside(self.folder, name, [job.state], job.state.nbytes)
                beside.append(name)
                self._state = (name, cursor.rounds)
            if job.outer:
                cursor.outer_file = checkpoint.OUTER.format(cursor.rounds)
                checkpoint.write_outer(self.folder, cursor.outer_file, job.outer)
                beside.append(cursor.outer_file)
            cursor.state_file, cursor.state_round = self._state
            path = checkpoint.write(self.folder, self._tensors, self._offsets, job.average, metadata(cursor))
        except Fault:
            self._state = before
            for name in beside:
                with contextlib.suppress(OSError):
                    (self.folder / name).unlink()
            raise
        checkpoint.tidy(self.folder)
        return path


def metadata(cursor: Cursor) -> dict[str, str]:
    """What the file's header says: a few words for people, and the cursor."""
    return {
        "format": "pt",
        "run": cursor.run,
        "mode": cursor.mode,
        "epoch": str(cursor.epoch),
        "rounds": str(cursor.rounds),
        "samples": str(sum(epoch.samples for epoch in cursor.history) + cursor.samples),
        "seed": str(cursor.seed),
        cursors.KEY: cursors.encode(cursor),
    }

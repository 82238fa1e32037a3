"""Carries out what the coordinator orders about checkpoints: find, put aside, write, rescue."""

from __future__ import annotations

import queue
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flodl_planes.coordinator.hub_events import (
    CheckpointFailed,
    CheckpointFound,
    CheckpointRefused,
    CheckpointWritten,
    FindCheckpoint,
    HubEvent,
    Rescue,
    WriteCheckpoint,
)
from flodl_planes.hub.transport import HubTransport
from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.segment import Segment
from flodl_planes.records import checkpoint, resume
from flodl_planes.records.checkpoint_writer import CheckpointWriter, Job
from flodl_wire import checkpoints
from flodl_wire.faults import Broken, Fault
from flodl_wire.plane_messages import TensorSpec

RESCUE_S = 6.0  # the launcher gives a hub ten seconds behind the verdict


class Saver:
    """`given`: the average of a checkpoint that was found, until it is handed out. Used by the hub's loop alone; what
    the writing thread has to say comes over `events`.
    """

    def __init__(self, folder: Path, transport: HubTransport, events: queue.SimpleQueue[Any]) -> None:
        self.folder = folder
        self.given: NDArray[np.uint8] | None = None
        self._transport = transport
        self._events = events
        self._aside: NDArray[np.uint8] | None = None
        self._outer: dict[str, NDArray[Any]] = {}
        self._writer: CheckpointWriter | None = None
        self._quiet = False  # the run has failed: what the thread says interests nobody

    def begin(self, tensors: list[TensorSpec]) -> None:
        """The model is known."""
        self._writer = CheckpointWriter(self.folder, tensors, lay_out(tensors).offsets, self._written)

    def find(self, order: FindCheckpoint) -> HubEvent:
        try:
            found = resume.find(order.said, self.folder.parent, self.folder.name, order.terms, order.tensors)
            if found.path is None or found.cursor is None:
                return CheckpointFound(None, notes=tuple(found.notes))
            layout = lay_out(order.tensors)
            given = np.empty(layout.total_bytes, np.uint8)
            checkpoint.load(found.path, order.tensors, layout.offsets, given)
            state = self._hand_out(found)
        except Fault as fault:
            return CheckpointRefused(fault)
        self.given = given
        self._restore_outer(found)
        return CheckpointFound(found.cursor, str(found.path), tuple(found.notes), state)

    def _hand_out(self, found: resume.Found) -> bool:
        """Optimizer and random streams to every rank; a file that is gone or cut short costs them and a sentence."""
        if not found.cursor or not found.cursor.state_file:
            return False
        try:
            if found.state is None:
                raise Broken("bad-file", f"cannot use {found.cursor.state_file}", "it is not there any more")
            checkpoint.read(found.state)
            with found.state.open("rb") as file:
                size = found.state.stat().st_size
                segment = Segment.create("restore", size)
                view = segment.buffer
                while view and (count := file.readinto(view)):
                    view = view[count:]
        except (Fault, OSError) as err:
            found.notes.append(f"{err}; optimizers begin anew")
            return False
        self._transport.restore(segment)
        segment.close()
        return True

    def _restore_outer(self, found: resume.Found) -> None:
        if not found.cursor or not found.cursor.outer_file:
            return
        try:
            if found.outer is None:
                raise Broken("bad-file", f"cannot use {found.cursor.outer_file}", "it is not there any more")
            self._transport.restore_outer(checkpoint.read_outer(found.outer))
        except (Fault, ValueError) as err:
            found.notes.append(f"{err}; the outer optimizer begins anew")

    def put_aside(self) -> None:
        """Copy the last average. Its memory is kept: a copy into fresh memory takes 16 times as long."""
        average = self._transport.average()
        if average is None:
            self._aside = None
            return
        if self._aside is None or self._aside.nbytes != average.nbytes:
            self._aside = np.empty(average.nbytes, np.uint8)
        np.copyto(self._aside, average)
        self._outer = self._copy_outer()

    def _copy_outer(self) -> dict[str, NDArray[Any]]:
        return {name: memory.copy() for name, memory in self._transport.outer_state().items()}

    def write(self, order: WriteCheckpoint) -> list[HubEvent]:
        """In a thread; what comes of it is on the queue later."""
        if self._writer is None or self._aside is None:
            why = "the last average is not here"
            return [CheckpointFailed(Broken("checkpoint-failed", "cannot write the checkpoint", why))]
        state = None if order.state_of is None else self._transport.states.take(order.state_of, order.number)
        self._writer.submit(Job(order.cursor, self._aside, state, self._outer))
        return []

    def rescue(self, order: Rescue) -> None:
        """The last average of a run that fails, if it is whole. Says on stderr what became of it."""
        self._quiet = True
        if self._writer is None or not self._writer.wait(RESCUE_S):
            return
        average = self._transport.rescued(order.number)
        if average is None:
            return
        try:
            path = self._writer.write(Job(order.cursor, average, outer=self._copy_outer()))
        except Fault as fault:
            kept = "; the checkpoint before it is kept" if checkpoints.files_in(self.folder) else ""
            print(f"{fault}{kept}", file=sys.stderr)
        else:
            print(f"the last average is kept: {path} (`fdl --resume` goes on from it)", file=sys.stderr)

    def close(self) -> None:
        """Let a write that is under way come to its end."""
        if self._writer is not None:
            self._writer.wait(RESCUE_S)

    def _written(self, outcome: Path | Fault) -> None:
        if not self._quiet:
            self._events.put(
                CheckpointFailed(outcome) if isinstance(outcome, Fault) else CheckpointWritten(str(outcome))
            )

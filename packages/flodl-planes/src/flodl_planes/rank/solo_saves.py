"""The checkpoints of a script run alone: its model is the average at every step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from flodl_planes.plane.layout import lay_out
from flodl_planes.rank.finite import Finite
from flodl_planes.rank.keeper import Keeper
from flodl_planes.rank.schema import Adopted, Slot, signature
from flodl_planes.records import checkpoint, resume
from flodl_planes.records.checkpoint_writer import CheckpointWriter, Job
from flodl_planes.records.cursor import Cursor
from flodl_wire import checkpoints
from flodl_wire.faults import Broken, Fault
from flodl_wire.plane_messages import Terms
from flodl_wire.result import EpochResult

if TYPE_CHECKING:
    import torch


class SoloSaves:
    """Copies model and state at a step, and writes them in a thread. `say` gets the sentences for people."""

    def __init__(
        self,
        folder: Path,
        terms: Terms,
        slots: list[Slot],
        device: torch.device,
        keeper: Keeper,
        say: Callable[[str], None],
    ) -> None:
        self.folder, self.terms = folder, terms
        self.tensors = [slot.spec for slot in slots]
        self._layout = lay_out(self.tensors)
        self._keeper, self._say = keeper, say
        self._flat = np.zeros(self._layout.total_bytes, np.uint8)
        # made now: what the model is when training begins says what each tensor is in the file
        buffer = memoryview(self._flat)  # type: ignore[arg-type]
        self._copy = Adopted(slots, self._layout.offsets, buffer, device, staged=True)
        self._writer = CheckpointWriter(folder, self.tensors, self._layout.offsets, self._written)
        self._since: float | None = None
        self.rounds = 0
        self.resumed = ""  # the checkpoint that this run goes on from

    def find(self) -> Cursor | None:
        """Where an earlier run stood, its model and state put in place; None: begin anew. Raises Refused, Broken."""
        said = resume.wanted(self.terms.resume)
        if said is None:
            return None
        found = resume.find(said, self.folder.parent, self.folder.name, self.terms, self.tensors)
        cursor = found.cursor
        if found.path is not None and cursor is not None:
            checkpoint.load(found.path, self.tensors, self._layout.offsets, self._flat)
            self._copy.refresh()
            self._restore(found, cursor)
            self.rounds, self.resumed = cursor.rounds, str(found.path)
            found.notes.append(f"goes on from {found.path}: {cursor.stands(self.terms.epochs)}")
        for note in found.notes:
            self._say(note)
        return cursor

    def _restore(self, found: resume.Found, cursor: Cursor) -> None:
        data = None
        if cursor.state_file:
            if found.state is None:
                found.notes.append(f"{cursor.state_file} is not there any more; the optimizer begins anew")
            else:
                data = memoryview(found.state.read_bytes())
        if cursor.outer_file:
            found.notes.append("a script alone has no averages, so the momentum of its outer optimizer is left out")
        self._keeper.restore(data, cursor.epoch, cursor.samples)

    def due(self, now: float) -> bool:
        """Whether time asks for a save, at this step."""
        every = self.terms.checkpoint_every
        if self._since is None:
            self._since = now
        timed = isinstance(every, float) and now - self._since >= every
        return timed and self._keeper.at_step and not self._writer.busy

    def epoch_due(self, epoch: int) -> bool:
        every = self.terms.checkpoint_every
        return isinstance(every, int) and (epoch + 1) % every == 0 and not self._writer.busy

    def save(self, cursor: Cursor, now: float) -> None:
        """Begin a save of this very step."""
        self._since = now
        self._writer.submit(self._job(cursor))

    def save_now(self, cursor: Cursor, *, state: bool = True) -> None:
        """And wait for it; without `state` the model alone. Raises Broken (checkpoint-failed)."""
        self._writer.wait()
        if state:
            self._writer.write(self._job(cursor))
        else:
            self.check()
            self._writer.write(Job(cursor, self._flat))

    def wait(self) -> None:
        self._writer.wait()

    def cursor(
        self,
        run: str,
        reason: str,
        epoch: int,
        merged: list[list[int]],
        history: list[EpochResult],
        loss: tuple[float, int],
    ) -> Cursor:
        """`merged`: what of epoch `epoch` is done; `loss`: the sum of its losses and of how many samples that is."""
        self.rounds += 1
        terms = self.terms
        return Cursor(
            run=run,
            mode=terms.mode,
            reason=reason,
            epoch=epoch,
            epochs=terms.epochs,
            merged=merged,
            seed=terms.seed,
            dataset=terms.dataset,
            batch_size=terms.batch_size,
            rounds=self.rounds,
            world_size=1,
            model_sig=signature(self.tensors),
            terms=msgspec.to_builtins(terms),
            history=list(history),
            loss_sum=loss[0],
            loss_samples=loss[1],
        )

    def check(self) -> None:
        """Raises Broken (not-finite) when the model is none of numbers any more: nothing is saved of that."""
        self._writer.wait()  # it may still be reading the copy that is about to be made anew
        self._copy.settle()
        culprit = Finite(self._layout, self.tensors, self._flat).culprit()
        if culprit:
            raise Broken(
                "not-finite",
                "cannot go on training: the model is not finite",
                f"first {culprit}",
                "lower the learning rate, clip the gradients (clip_norm=1.0), and resume from the last checkpoint",
            )

    @property
    def at_step(self) -> bool:
        return self._keeper.at_step

    def _job(self, cursor: Cursor) -> Job:
        self.check()
        segment = self._keeper.capture()
        segment.close()
        return Job(cursor, self._flat, segment.buffer)

    def _written(self, outcome: Path | Fault) -> None:
        if isinstance(outcome, Fault):
            before = checkpoints.files_in(self.folder)
            kept = "and the checkpoint before it is kept" if before else "without a checkpoint so far"
            self._say(f"{outcome}; training goes on, {kept}")

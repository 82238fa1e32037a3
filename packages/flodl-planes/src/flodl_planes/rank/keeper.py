"""A rank's state besides the model, taken at a checkpoint and put back when a run goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from flodl_planes.plane.segment import Segment
from flodl_planes.rank import seeds, state_tree
from flodl_planes.rank.stepper import Stepper
from flodl_wire.faults import Fault


class Keeper:
    """Of this rank: what steps its model, and its random streams."""

    def __init__(self, stepper: Stepper, device: torch.device, rank: int, seed: int) -> None:
        self._stepper = stepper
        self._device = device
        self._rank, self._seed = rank, seed
        self._warned = False
        self.losses: Callable[[], tuple[float, int]] = lambda: (0.0, 0)
        """Σ loss·samples of the window so far, and of how many samples."""
        self.on_save: Callable[[int], None] = lambda epoch: None
        """Alone: a checkpoint is being taken in that epoch."""

    @property
    def at_step(self) -> bool:
        """Whether the model is what the batches that were counted made of it: none is half done, nothing gathered."""
        return not self._stepper.gathered and not self._stepper.under_way

    def capture(self) -> Segment:
        """A safetensors file in shared memory of its own."""
        tree = {"rank": self._rank, "streams": seeds.streams(self._device), "stepper": self._stepper.state()}
        segment, left_out = state_tree.pack(tree)
        if left_out and not self._warned:
            self._warned = True
            what = ", ".join(left_out[:3])
            print(f"flodl: the checkpoint leaves out {what}: it is no tensor and no number", file=sys.stderr)
        return segment

    def restore(self, data: memoryview | None, epoch: int, step: int) -> None:
        """Go on from what `capture` gave; None: with optimizers as new. The random streams are those of the rank with
        the same number; the others, which that run may not have had, begin streams that no run before drew from.
        """
        seeds.plant(seeds.of_rank(self._seed, self._rank) + 7_919 * (step + 1) + epoch)
        if data is None:
            return
        try:
            tree = state_tree.unpack(data)
            self._stepper.restore(tree["stepper"])
            if tree["rank"] == self._rank:
                seeds.restore(tree["streams"], self._device)
        except (Fault, KeyError, TypeError) as err:
            print(f"flodl: optimizer and random streams begin anew: {err}", file=sys.stderr)

    def forget(self) -> None:
        """This rank's work was not finite, and its optimizer's moments come from it."""
        told = "flodl: this rank's model was not finite; it goes on from the average, its optimizer anew"
        print(told, file=sys.stderr)
        self._stepper.forget()

"""A model that goes on learning while its average is made: snapshots out, corrections in.

    θ ← average + (θ_now − θ_at_snapshot)

What others read (the live buffer) is a snapshot, taken at each deposit; the module lives in memory of its own. When
the average of the snapshots arrives, everything learned since is carried over onto it. A rank that has learned nothing
since holds exactly the average afterwards.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from flodl_planes.plane.layout import MEAN, Layout
from flodl_planes.rank.drift import norm, relative
from flodl_planes.rank.flat import AVERAGED, section_of, summed_in
from flodl_planes.rank.schema import Adopted, Slot, view_of

Bytes = NDArray[np.uint8]


class Corrected:
    """`live`: the buffer that others read. On a GPU the module keeps its own tensors and the difference travels."""

    def __init__(self, slots: list[Slot], layout: Layout, live: Bytes, device: torch.device) -> None:
        self._slots = slots
        self._layout = layout
        self._live = live
        self._snapshot = np.empty_like(live)
        self._staged = device.type != "cpu"
        self._own = live if self._staged else np.empty_like(live)
        self._module = Adopted(slots, layout.offsets, memoryview(self._own), device)  # type: ignore[arg-type]
        self._device = device
        self._publish()

    def settle(self) -> None:
        """Take a snapshot for the others. Raises Refused when the model is no longer the one that began."""
        self._module.settle()
        self._publish()

    def refresh(self) -> None:
        """A round that everybody waited for: the module becomes what stands in the live buffer."""
        if self._staged:
            self._module.refresh()
        else:
            np.copyto(self._own, self._live)

    def become(self, average: Bytes) -> None:
        """The module is the average, and what it has learned since the snapshot is dropped."""
        np.copyto(self._live, average)
        self.refresh()

    def correct(self, average: Bytes, *, measure: bool) -> float | None:
        """Carry what was learned since the snapshot over onto `average`. Answers ‖snapshot − average‖ / ‖average‖ when
        asked to `measure`; None when that is not finite.
        """
        drift = self._drift(average) if measure else None
        with torch.no_grad():
            if self._staged:
                self._correct_on_device(average)
            else:
                self._module.settle()  # a tensor may have been bound anew since
                for section in self._layout.sections:
                    if section.op == MEAN:
                        _carry_over(*(section_of(buffer, section) for buffer in (self._own, self._snapshot, average)))
                for own, before, taken in self._taken(self._own, self._snapshot, average):
                    own.copy_(taken + (own - before) if _counts(own) else taken)
        return drift

    def _publish(self) -> None:
        if not self._staged:
            np.copyto(self._live, self._own)
        np.copyto(self._snapshot, self._live)

    def _drift(self, average: Bytes) -> float | None:
        moved = size = 0.0
        for section in self._layout.sections:
            if section.op == MEAN:
                before, after = section_of(self._snapshot, section), section_of(average, section)
                wide = summed_in(after)
                moved += float(torch.dist(before.to(wide), after.to(wide))) ** 2
                size += norm(after) ** 2
        return relative(moved, size)

    def _correct_on_device(self, average: Bytes) -> None:
        """The difference is made here, in the snapshot's place, and added over there."""
        for section in self._layout.sections:
            if section.op == MEAN:
                before = section_of(self._snapshot, section)
                torch.sub(section_of(average, section), before, out=before)
        for slot, offset in zip(self._slots, self._layout.offsets, strict=True):
            registry, key = slot.places[0]
            tensor = registry[key].detach()
            change, taken = view_of(self._snapshot, tensor, offset), view_of(average, tensor, offset)
            if tensor.dtype in AVERAGED:
                tensor.add_(change.to(self._device))
            elif _counts(tensor):
                tensor.add_((taken - change).to(self._device))
            else:
                tensor.copy_(taken)

    def _taken(self, *buffers: Bytes) -> list[tuple[torch.Tensor, ...]]:
        """The tensors that are taken from one rank, as each of `buffers` has them."""
        return [
            tuple(view_of(buffer, slot.tensor, offset) for buffer in buffers)
            for slot, offset in zip(self._slots, self._layout.offsets, strict=True)
            if slot.tensor.dtype not in AVERAGED and slot.tensor.numel()
        ]


def _carry_over(own: torch.Tensor, before: torch.Tensor, average: torch.Tensor) -> None:
    """``own = average + (own − before)``; `before` is used up. Half precision is computed in float32."""
    if own.dtype in (torch.float32, torch.float64):
        torch.sub(own, before, out=before)
        torch.add(average, before, out=own)
    else:
        own.copy_(average.float() + (own.float() - before.float()))


def _counts(tensor: torch.Tensor) -> bool:
    """Whole numbers go on counting from where the leader's stand; masks and the like are the leader's."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)

"""A rank's windows in nccl_sync and nccl_cadence: a hub decides, as in cpu modes, and the ranks move the tensors."""

from __future__ import annotations

import numpy as np
import torch

from flodl_planes.plane.layout import Layout
from flodl_planes.plane.rank_plane import RankPlane
from flodl_planes.plane.segment import Segment
from flodl_planes.rank.collective import Collective, kind_for
from flodl_planes.rank.drift import Drift
from flodl_planes.rank.finite import Finite
from flodl_planes.rank.member import RankWindows
from flodl_planes.rank.schema import Adopted, Slot
from flodl_wire.faults import Broken, Fault
from flodl_wire.plane_messages import Commit, Dismiss, Moved, RankDown, Round, TensorSpec


class DirectWindows(RankWindows):
    """A round in three steps: average into a room of its own, say so, and apply it when everybody has it."""

    def _adopt(self, slots: list[Slot], layout: Layout, live: Segment) -> None:
        """On a GPU the flat model is there too; the live buffer then only says how large it is, and takes no memory."""
        self._kind = kind_for(self._device, self._terms.mode)
        if self._device.type == "cpu":
            self._adopted = Adopted(slots, layout.offsets, live.buffer, self._device)
            flat = torch.empty(0, dtype=torch.uint8)
            if live.nbytes:
                flat = torch.frombuffer(live.buffer, dtype=torch.uint8)
        else:
            flat = torch.empty(layout.total_bytes, dtype=torch.uint8, device=self._device)
            self._adopted = Adopted(slots, layout.offsets, flat, self._device)
        self._flat = flat
        self._collective = Collective(layout, flat, self._place.rank, self._place.host)
        self._word: RankDown | None = None  # of the hub, on the present attempt

    def _drift_of(self, layout: Layout, live: Segment) -> Drift:
        return Drift(layout, self._flat)

    def _finite_of(self, layout: Layout, tensors: list[TensorSpec], live: Segment) -> Finite:
        return Finite(layout, tensors, self._flat)

    def _reduce(self, plane: RankPlane, round: Round) -> Round:
        if round.given:  # a checkpoint's model comes by way of the hub, as in cpu modes
            closed = super()._reduce(plane, round)
            if self._device.type != "cpu" and plane.live.nbytes:
                self._flat.copy_(torch.frombuffer(plane.live.buffer, dtype=torch.uint8))
            return closed
        while plane.moves(round):
            later = self._attempt(plane, round)
            if later is None:
                return round
            round = later
        return round

    def close(self) -> None:
        self._collective.close()
        super().close()

    def _attempt(self, plane: RankPlane, round: Round) -> Round | None:
        """None when the average is the model; a later attempt when this one will not come to an end."""
        forming = True
        moved = Moved(round.round, round.attempt)
        try:
            through = self._collective.join(round, lambda: self._news(plane, round))
            forming = False
            if through:
                through = self._collective.average(round, lambda: self._news(plane, round))
            if through and round.keep and round.leader == self._place.rank:
                average = np.empty(self._flat.numel(), np.uint8)
                self._collective.copy_average(average)
                plane.keep(round, average)
        except (Fault, RuntimeError) as err:
            through = False
            words = err.why if isinstance(err, Fault) else str(err)
            moved.error, moved.forming = words.partition("\n")[0][:500] or type(err).__name__, forming
        if through or moved.error:
            plane.send(moved)
        later = self._await_word(plane, round)
        if later is not None:
            self._collective.give_up()
        else:
            self._collective.apply()
        return later

    def _await_word(self, plane: RankPlane, round: Round) -> Round | None:
        """The hub's, on this attempt: None when it is committed, else the attempt in its place."""
        while self._word is None:
            self._news(plane, round)
            if self._word is None:
                plane.wait(None)
        word, self._word = self._word, None
        if isinstance(word, Dismiss):
            self._collective.give_up()
            raise Broken("dismissed", "cannot go on training", word.reason)
        return word if isinstance(word, Round) else None

    def _news(self, plane: RankPlane, round: Round) -> bool:
        """Whether the hub has spoken about this attempt; before it is made, that can only mean that it is off."""

        def wanted(message: RankDown) -> bool:
            if isinstance(message, Commit):
                return (message.round, message.attempt) == (round.round, round.attempt)
            later = isinstance(message, Round) and message.round == round.round and message.attempt > round.attempt
            return later or isinstance(message, Dismiss)

        self._word = self._word or plane.pick(wanted)
        return self._word is not None

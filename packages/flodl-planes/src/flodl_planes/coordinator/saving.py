"""When the average is saved, and how far each save is.

A save begins with a round that is *due*: it leaves its average with the hub, and the next plan of the *owner* (the
callback rank) asks for its optimizer, scheduler and random streams. Once the round is decided the hub copies the
average, so that the next round may begin; once the owner's state is whole, or certain not to come, a thread of the hub
writes both. At most one periodic save is under way: a disk that is slower than that costs checkpoints, never rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from flodl_planes.coordinator.hub_events import CopyAverage, HubOrder, WriteCheckpoint
from flodl_planes.records.cursor import Cursor
from flodl_wire.plane_messages import Plan, State, Terms

WAITED_FOR, COMING, HERE, NONE = "waited for", "coming", "here", "none"


@dataclass
class Save:
    """Of the average of round `number`. `state`: of the owner."""

    number: int
    owner: int | None
    final: bool
    state: str
    asked: bool = False
    cursor: Cursor | None = None
    copied: bool = False
    ordered: bool = False


class Saving:
    """`final_written`: the last average is on the disk. `saved`: the last round that is."""

    def __init__(self, terms: Terms, now: float) -> None:
        self._every = terms.checkpoint_every
        self._since = now
        self._saves: list[Save] = []
        self.final_written = False
        self.saved = 0

    def due(self, completes: int | None, final: bool, now: float, number: int) -> bool:
        """Whether round `number`, which completes the epoch `completes` and is about to be ordered (perhaps once more),
        is to be saved.
        """
        self.withdrawn(number)
        if final:
            return True
        if self._saves or self._every is None:
            return False
        if isinstance(self._every, int):
            return completes is not None and (completes + 1) % self._every == 0
        return now - self._since >= self._every

    def opened(self, number: int, owner: int | None, final: bool) -> None:
        """A round that is due was ordered."""
        self._saves.append(Save(number, owner, final, NONE if owner is None else WAITED_FOR))

    def withdrawn(self, number: int) -> None:
        """The order of that round was taken back."""
        self._saves = [save for save in self._saves if save.number != number]

    @property
    def owner(self) -> int | None:
        """Who is to be asked for the newest save's state."""
        return self._saves[-1].owner if self._saves else None

    def ask(self, rank: int) -> int | None:
        """The round whose save asks for the state of `rank`, for the rank's next plan; once.

        A plan asks for one state, and behind the final round there is no other: when in cpu_async the save before it
        has not been asked for yet (its round carried no plans), that one does without.
        """
        waiting = [save for save in self._saves if save.owner == rank and save.state == WAITED_FOR and not save.asked]
        for save in waiting[:-1]:
            save.state = NONE
        if not waiting:
            return None
        waiting[-1].asked = True
        return waiting[-1].number

    def waits_for(self, number: int) -> bool:
        return any(save.number == number for save in self._saves)

    def decided(self, number: int, cursor: Cursor, now: float) -> list[HubOrder]:
        """The round's average is certain, and `cursor` says where training stands with it."""
        for save in self._saves:
            if save.number == number:
                save.cursor, self._since = cursor, now
        return self._go_on()

    # the owner's state

    def announced(self, rank: int, state: State) -> list[HubOrder]:
        self._state(rank, state.round, WAITED_FOR, COMING)
        return []

    def whole(self, rank: int, number: int) -> list[HubOrder]:
        self._state(rank, number, COMING, HERE)
        return self._go_on()

    def deposited(self, rank: int, plan: Plan) -> list[HubOrder]:
        """The owner has done the plan that asked for its state; it has said State before, or has none."""
        if plan.save is not None:
            self._state(rank, plan.save, WAITED_FOR, NONE)
        return self._go_on()

    def lost(self, rank: int) -> list[HubOrder]:
        for save in self._saves:
            if save.owner == rank and save.state != HERE:
                save.state = NONE
        return self._go_on()

    def _state(self, rank: int, number: int, before: str, after: str) -> None:
        for save in self._saves:
            if (save.owner, save.number, save.state) == (rank, number, before):
                save.state = after

    # the disk

    def done(self, *, written: bool) -> list[HubOrder]:
        """The save in hand is on the disk, or is not to be."""
        save = self._saves.pop(0)
        if written:
            self.saved = save.number
            self.final_written |= save.final
        return self._go_on()

    @property
    def final(self) -> bool:
        """Whether the save in hand is the last one: without it the run has no result."""
        return bool(self._saves) and self._saves[0].final

    @property
    def settled(self) -> bool:
        """The last average is on the disk, or is being written."""
        return self.final_written or any(save.final and save.ordered for save in self._saves)

    def _go_on(self) -> list[HubOrder]:
        if not self._saves:
            return []
        save, orders = self._saves[0], list[HubOrder]()
        if save.cursor is not None and not save.copied:
            save.copied = True
            orders.append(CopyAverage())
        if save.cursor is not None and save.copied and save.state in (HERE, NONE) and not save.ordered:
            save.ordered = True
            state_of = save.owner if save.state == HERE else None
            orders.append(WriteCheckpoint(save.cursor, save.number, state_of))
        return orders

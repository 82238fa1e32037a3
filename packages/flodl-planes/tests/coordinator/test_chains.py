"""A run that is killed at any moment, gone on from with another world, killed again, …: over the chain of runs each
sample of each epoch is in the model exactly once.

The judge is what the averages hold: every round that is decided adds its samples to the average, a checkpoint keeps
what its average held when it was put aside, and the next run begins with that.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from flodl_planes.coordinator.hub_events import (
    CheckpointFailed,
    CheckpointFound,
    CheckpointWritten,
    CopyAverage,
    Rescue,
    WriteCheckpoint,
)
from flodl_planes.records import cursor as cursors
from flodl_planes.records.cursor import Cursor
from flodl_wire.faults import Broken
from flodl_wire.hub_messages import EpochDone, Finished, Stop
from flodl_wire.plane_messages import WIRES

WORLDS = [{"a": [0]}, {"a": [0, 1]}, {"a": [0], "b": [1]}, {"a": [0, 1, 2]}, {"a": [0, 1], "b": [2], "c": [3]}]
MODES = ["cpu_sync", "cpu_cadence", "cpu_async", "nccl_sync", "nccl_cadence"]
OUTERS = [{"kind": kind, "lr": 0.7, "momentum": 0.9} for kind in ("nesterov", "slow_momentum")]
LONGEST = 400  # steps of one run: it is not killed after them
Content = dict[int, list[int]]  # epoch → positions, as often as they went into the average


@dataclass
class Disk:
    """The newest checkpoint, as its file would hold it."""

    cursor: str = ""
    content: Content = field(default_factory=dict)

    def found(self, epochs: int, evaluates: bool) -> CheckpointFound:
        """What `auto` finds on it."""
        if not self.cursor:
            return CheckpointFound(None)
        stood = self.read()
        owes = evaluates and stood.owes_evaluation(epochs)
        return CheckpointFound(stood if stood.epoch < epochs or owes else None, "before", state=True)

    def read(self) -> Cursor:
        return cursors.decode({cursors.KEY: self.cursor}, "the disk")


class Life:
    """One run of the chain."""

    def __init__(self, world: Any, disk: Disk) -> None:
        self.world, self.disk = world, disk
        self.aside: Content = {}
        self.hand: Disk | None = None  # being written
        self._seen = 0
        self.world.merged = {epoch: list(positions) for epoch, positions in disk.content.items()}
        if disk.cursor:
            self.world.merged = {} if world.found.cursor is None else self.world.merged
        world.load()
        self._look()

    def act(self, action: Any, *args: Any) -> None:
        action(*args)
        self._look()

    def actions(self) -> list[tuple[Any, ...]]:
        """What could happen next, deaths apart."""
        world = self.world
        possible: list[tuple[Any, ...]] = [(world.deposit, rank) for rank in sorted(world.undone)]
        possible += [(world.applied, rank) for rank in sorted(world.to_apply)]
        possible += [(world.decide,)] if world.open is not None else []
        return possible + ([(self.land,)] if self.hand else [])

    def land(self) -> None:
        """The checkpoint in hand is on the disk, and the hub hears of it."""
        assert self.hand
        self._keep(self.hand)
        self.world.tell(CheckpointWritten("x"))

    def full(self) -> None:
        """The disk does not take it."""
        self.hand = None
        self.world.tell(CheckpointFailed(Broken("checkpoint-failed", "cannot write x", "no space left")))

    def killed(self, *, written: bool) -> None:
        """All at once, and no word of it; `written`: a moment after the file was in its place."""
        if self.hand and written:
            self._keep(self.hand)

    def stopped(self) -> None:
        """The launcher asks for the end: the last average is saved, where it is whole."""
        open_round = self.world.open  # a round under way has the average's memory
        for order in self.world.tell(Stop("interrupted")):
            if not isinstance(order, Rescue):
                continue
            if self.hand:  # the thread comes to its end before
                self._keep(self.hand)
            if open_round is None or not open_round.weights:
                self._keep(Disk(cursors.encode(order.cursor), self._content()))

    def _keep(self, written: Disk) -> None:
        """The cursor says what the average holds, or samples would be lost or done twice."""
        stood = written.read()
        samples = self.world.samples
        whole = {epoch: list(range(samples)) for epoch in range(stood.epoch)}
        begun = sorted(position for start, count in stood.merged for position in range(start, start + count))
        held = {epoch: sorted(positions) for epoch, positions in written.content.items() if positions}
        assert held == {**whole, **({stood.epoch: begun} if begun else {})}
        assert [result.epoch for result in stood.history] == list(range(stood.epoch))
        assert (stood.loss_sum, stood.loss_samples) == (2.0 * len(begun), len(begun))
        self.disk.cursor, self.disk.content, self.hand = written.cursor, written.content, None

    def _content(self) -> Content:
        return {epoch: list(positions) for epoch, positions in self.world.merged.items()}

    def _look(self) -> None:
        orders, self._seen = self.world.said[self._seen :], len(self.world.said)
        for order in orders:
            if isinstance(order, CopyAverage):
                self.aside = self._content()
            elif isinstance(order, WriteCheckpoint):
                assert self.hand is None, "one at a time"
                self.hand = Disk(cursors.encode(order.cursor), self.aside)


def live(life: Life, moment: int, dice: random.Random, needed: int) -> str:
    """One run, until it is over or, after `moment` events, comes to a bad end; how it ended."""
    world = life.world
    for steps in range(LONGEST):
        if world.over:
            return "over"
        if steps >= moment:
            return _end(life, dice)
        actions = life.actions()
        living = [rank for rank in world.living() if rank not in world.dead]
        if dice.random() < 0.02 and len(living) > needed and len(world.hosts) == 1 and world.to_apply == set():
            actions = [(world.kill, rank) for rank in living]
        elif life.hand and not world.coordinator.training.saving.final and dice.random() < 0.1:
            actions = [(life.full,)]
        assert actions, f"nothing can happen any more in {world.coordinator.phase}: {world.said[-3:]}"
        life.act(*dice.choice(actions))
    while not world.over:
        life.act(*life.actions()[0])
    return "over"


def _end(life: Life, dice: random.Random) -> str:
    how = dice.choice(["killed", "killed", "stopped", "failed"])
    if how == "failed" and life.hand and life.world.coordinator.training.saving.final:
        life.act(life.full)  # the last checkpoint is the result: without it the run has failed
    elif how == "stopped":
        life.stopped()
    else:
        life.killed(written=dice.random() < 0.5)
    return how


@settings(deadline=None, max_examples=250)
@given(
    st.integers(1, 120), st.integers(1, 17), st.integers(1, 3), st.booleans(),
    st.lists(st.integers(0, 90), min_size=1, max_size=5), st.integers(0, 2**32),
)  # fmt: skip
@example(64, 8, 2, True, [5, 6, 7, 8, 9], 1)
def test_each_sample_is_in_the_model_exactly_once_however_often_the_run_is_killed(
    paper: Any, samples: int, batch: int, epochs: int, evaluates: bool, moments: list[int], seed: int
) -> None:
    dice, disk = random.Random(seed), Disk()
    for moment in [*moments, LONGEST]:
        hosts, mode = dice.choice(WORLDS), dice.choice(MODES)
        if mode.startswith("nccl") and hosts == WORLDS[0]:
            hosts = WORLDS[1]
        size = batch if dice.random() < 0.7 else dice.randint(1, 17)
        speeds = [dice.choice([1.0, 2.5, 10.0]) for _ in range(4)]
        changes = {"checkpoint_every": dice.choice([0.004, 0.02, 1, None]), "resume": "auto"}
        found = disk.found(epochs, evaluates)
        averaging: dict[str, Any] = {}
        if dice.random() < 0.3 and not mode.startswith("nccl"):
            averaging = {"wire": dice.choice(WIRES), "outer": dice.choice([{}, *OUTERS])}
        world = paper(hosts, samples, size, epochs, mode, evaluates, averaging=averaging, ms=speeds.__getitem__,
                      changes=changes, disk=False, found=found)  # fmt: skip
        life = Life(world, disk)
        _goes_on_where_it_stood(world, found.cursor)
        ended = live(life, moment, dice, 2 if mode.startswith("nccl") else 1)
        if ended == "over" and world.told(Finished):
            break
    _all_is_done(world, disk, epochs, samples, evaluates)


def _goes_on_where_it_stood(world: Any, before: Cursor | None) -> None:
    if before is None:
        return
    training = world.coordinator.training
    assert training.rounds_before == before.rounds
    cadence = getattr(training.dealer, "cadence", None)
    if cadence is not None and before.elche:
        assert cadence.anchor == max(before.elche["anchor"], cadence.settings.floor)


def _all_is_done(world: Any, disk: Disk, epochs: int, samples: int, evaluates: bool) -> None:
    assert world.told(Finished), world.said[-6:]
    (finished,) = world.told(Finished)
    everything = {epoch: list(range(samples)) for epoch in range(epochs)}
    assert {epoch: sorted(positions) for epoch, positions in disk.content.items()} == everything
    assert disk.read().epoch == epochs and disk.read().reason == "finished"
    told = finished.result.epochs
    assert [(each.epoch, each.samples, each.loss) for each in told] == [(n, samples, 2.0) for n in range(epochs)]
    assert not evaluates or told[-1].eval == {"accuracy": 0.5}, "the last model was evaluated, in whichever run"
    again = [message.epoch for message in world.told(EpochDone)]
    assert again == list(range(again[0], epochs)) if again else not evaluates

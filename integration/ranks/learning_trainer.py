"""What learning_rank.py does, with a Trainer: the same problem in torch, in every mode.

`--record` writes down what this rank delivers: the positions in the epoch's order of the samples that its loss has
seen, just before they are handed in.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from linear_problem import BATCH, MOMENTUM, RATE, WIDTH, problem
from torch import nn

from flodl_planes import Trainer
from flodl_planes.plane.rank_plane import RankPlane
from flodl_wire.plane_messages import Deposit, RankUp


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--samples", type=int, default=480)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-ms", type=float, default=4.0)
    p.add_argument("--stall-timeout", type=float)
    p.add_argument("--record", type=Path)
    p.add_argument("--linger", type=float, default=0.0, help="seconds of work of its own behind the training")
    return p.parse_args()


class Numbered(torch.utils.data.Dataset[Any]):
    """Each sample knows which it is."""

    def __init__(self, inputs: np.ndarray, truth: np.ndarray) -> None:
        self._inputs, self._wanted = torch.from_numpy(inputs), torch.from_numpy(inputs @ truth)

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        return index, self._inputs[index], self._wanted[index]


class Record:
    """What this rank has done, one line for each deposit: [epoch, [[start, count], …]]."""

    def __init__(self, folder: Path | None, samples: int) -> None:
        self._path = folder and folder / f"{os.getpid()}.jsonl"
        self._samples = samples
        self._epoch, self._done = -1, list[int]()

    def did(self, epoch: int, indices: torch.Tensor) -> None:
        """A step was made of these samples. Position p of an epoch is sample order[p] (docs/protocol.md, C-13)."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._places = np.argsort(np.random.RandomState(epoch).permutation(self._samples))
        self._done += self._places[indices.numpy()].tolist()

    def hand_in(self) -> None:
        if self._path:
            with self._path.open("a") as file:
                print(json.dumps([self._epoch, spans(self._done)]), file=file)
        self._done = []


def spans(positions: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for position in positions:
        if found and sum(found[-1]) == position:
            found[-1][1] += 1
        else:
            found.append([position, 1])
    return found


def before_each_deposit(act: Callable[[], None]) -> None:
    """Nothing that a script is given tells it of that moment, in which nobody else can have the work yet."""
    send = RankPlane.send

    def acted(self: RankPlane, message: RankUp) -> None:
        if isinstance(message, Deposit):
            act()
        send(self, message)

    RankPlane.send = acted  # type: ignore[method-assign]


def build() -> nn.Module:
    model = nn.Linear(WIDTH, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def main() -> None:
    given = parse()
    truth, inputs = problem(given.samples)
    record = Record(given.record, given.samples)
    before_each_deposit(record.hand_in)
    goal = torch.from_numpy(truth)
    with Trainer(
        model=build,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM),
        data=Numbered(inputs, truth),
        batch_size=BATCH,
        epochs=given.epochs,
        evaluate=lambda model: {"off": float(torch.linalg.vector_norm(next(model.parameters())[0] - goal))},
        checkpoint_every="0.2s",
        stall_timeout=given.stall_timeout,
    ) as t:
        for epoch in t.epochs():
            for indices, batch, wanted in t.batches():
                t.backward((t.model(batch)[:, 0] - wanted).square().mean() / 2)
                t.step()
                record.did(epoch, indices)
                time.sleep(given.batch_ms / 1e3)  # plays a device's pace
    time.sleep(given.linger)  # plays work of its own


if __name__ == "__main__":
    main()

"""What the ranks of the conformance kit run, and what they write down: every deposit and every average."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from flodl_planes import Trainer, local_cluster
from flodl_planes.rank import async_member, member

BATCH = 2


class Numbers:
    """Sample i is four features made of i."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([1.0, index % 7, index % 3, index]) / 10


class Everything(nn.Module):
    """Parameters of four dtypes, tied ones, a frozen module, BatchNorm's float and integer buffers, a mask, a buffer
    that does not travel. Every gradient is a number made of the batch, so that ranks part from one another at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.first = nn.Linear(4, 3)
        self.tied = nn.Linear(4, 3)
        self.tied.weight = self.first.weight
        self.frozen = nn.Linear(4, 3).requires_grad_(False)
        self.wide = nn.Parameter(torch.randn(5, dtype=torch.float64))
        self.brain = nn.Parameter(torch.randn(6).bfloat16())
        self.small = nn.Parameter(torch.randn(7).half())
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int32))
        self.register_buffer("passing", torch.ones(1), persistent=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.seen += len(batch)
        self.passing += 1
        out = self.tied(self.first(self.norm(batch)) @ torch.ones(3, 4)).sum() + self.frozen(batch).sum()
        for odd in (self.wide, self.brain, self.small):
            out = out + odd.float().sum() * batch.sum()
        return torch.tanh(out / 100)  # so that no rank runs away to infinity


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


class Recorder:
    """Writes `folder`/<rank>-<number>.pt, one file per record, in order: deposit, opened, average, corrected."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rank, self.count = folder, local_cluster().rank, 0
        self.model: nn.Module
        self.act: dict[int, int] = {}  # round → signal that this process sends itself in its middle

    def note(self, kind: str, **facts: Any) -> None:
        torch.save({"kind": kind, **facts}, self.folder / f"{self.rank}-{self.count:04}.pt")
        self.count += 1

    def install(self) -> None:
        """Around the seams that every plane has: handing in, taking part, taking a correction in."""
        hand_in, reduce, average = (getattr(member.RankWindows, name) for name in ("_hand_in", "_reduce", "_average"))
        recorder = self

        def noted_hand_in(windows: Any, deposit: Any) -> Any:
            recorder.note("deposit", window=deposit.window, steps=deposit.steps, state=state_of(recorder.model))
            return hand_in(windows, deposit)

        def noted_average(windows: Any, plane: Any, opened: Any) -> Any:
            recorder.in_the_middle(opened)
            plan = average(windows, plane, opened)
            recorder.note("average", round=recorder.closed, state=state_of(recorder.model))
            return plan

        def noted_correct(windows: Any, plane: Any, opened: Any) -> None:
            recorder.in_the_middle(opened)
            before = state_of(recorder.model)
            taken = plane.average(opened)
            average = None if taken is None else taken.copy()
            correct(windows, plane, opened)
            recorder.note("corrected", round=opened, before=before, average=average, state=state_of(recorder.model))

        kinds = {member.RankWindows, async_member.AsyncWindows}
        if "nccl" in (local_cluster().mode or ""):
            from flodl_planes.rank.direct_member import DirectWindows

            kinds.add(DirectWindows)
        for kind in kinds:
            if "_reduce" in kind.__dict__:
                self._note_reduce(kind, kind.__dict__["_reduce"])
        member.RankWindows._hand_in = noted_hand_in  # type: ignore[method-assign]
        member.RankWindows._average = noted_average  # type: ignore[method-assign]
        correct = async_member.AsyncWindows._correct
        async_member.AsyncWindows._correct = noted_correct  # type: ignore[method-assign]
        del reduce

    def _note_reduce(self, kind: Any, reduce: Any) -> None:
        def noted(windows: Any, plane: Any, opened: Any) -> Any:
            self.closed = reduce(windows, plane, opened)
            return self.closed

        kind._reduce = noted

    def in_the_middle(self, opened: Any) -> None:
        """Of a round: it has begun, and this rank has not done its part."""
        sent = self.act.pop(opened.round, None)
        if sent is not None:
            os.kill(os.getpid(), sent)


def train(folder: Path, *, samples: int = 40, slow: int = -1, act: dict[int, dict[int, int]] | None = None,
          model: Any = Everything, rebind: bool = False, **more: Any) -> None:  # fmt: skip
    """A rank's program. `slow`: a rank that takes 4 ms longer per batch. `act`: rank → round → signal."""
    recorder = Recorder(folder)
    recorder.act = dict((act or {}).get(recorder.rank, {}))
    recorder.install()

    def build() -> nn.Module:
        recorder.model = model()
        return recorder.model

    def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        return torch.optim.SGD(learning or [nn.Parameter(torch.zeros(1))], lr=0.01)

    arguments: dict[str, Any] = {"batch_size": BATCH, "epochs": 2, "seed": 5, "anchor": 3, "max_anchor": 3, **more}
    with Trainer(model=build, optimizer=optimizer, data=Numbers(samples), **arguments) as t:
        for _ in t.epochs():
            for number, batch in enumerate(t.batches()):
                loss = t.model(batch)
                if loss.requires_grad:
                    t.backward(loss)
                t.step()
                if t.rank == slow:
                    time.sleep(0.004)  # plays a device's pace
                if rebind and number == 2:
                    t.model.first.bias.data = t.model.first.bias.data.clone()
                    t.model.load_state_dict(state_of(t.model), assign=True)
    recorder.note("end", state=state_of(t.model))


KILL, STOP = signal.SIGKILL, signal.SIGSTOP

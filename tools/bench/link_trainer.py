"""A Trainer with a model of four million parameters, for `slow_link`: computes really, and plays boxes of its own.

A batch lasts as long as it is told, or as long as its computing where that is longer.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import nn

from flodl_planes import Trainer

WIDTH, INNER = 1000, 2000  # 4,003,000 parameters in two layers
BATCH = 8


class Noise(torch.utils.data.Dataset[Any]):
    """As many samples as are wanted, of a thousand different ones."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._inputs = torch.randn(1000, WIDTH, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._inputs[index % len(self._inputs)]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--samples", type=int, required=True)
    p.add_argument("--batch-ms", type=float, nargs="+", required=True, help="one for each rank")
    p.add_argument("--wire", default="float32")
    given = p.parse_args()
    torch.set_num_threads(1)
    with Trainer(
        model=lambda: nn.Sequential(nn.Linear(WIDTH, INNER), nn.Tanh(), nn.Linear(INNER, WIDTH)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        data=Noise(given.samples),
        batch_size=BATCH,
        epochs=1,
        wire=given.wire,
    ) as t:
        lasts = given.batch_ms[t.rank] / 1e3
        for _ in t.epochs():
            for batch in t.batches():
                due = time.perf_counter() + lasts
                t.backward((t.model(batch) - batch).square().mean())
                t.step()
                time.sleep(max(0.0, due - time.perf_counter()))  # plays a device's pace


if __name__ == "__main__":
    main()

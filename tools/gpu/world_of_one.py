"""A world of one rank in mode nccl_*, on the GPU or (to rehearse) on the processor. A window refuses such a world, so
hub, relay and rank are forked from here.

Prints one JSON object: what the run was, what moved its tensors, how many samples it did.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.forked_world import ForkedWorld, warm_up


def train() -> None:
    import torch
    from torch import nn

    from flodl_planes import Trainer

    data: Any = [(torch.full((8,), index / 64), torch.tensor([index / 64])) for index in range(64)]
    Trainer(
        model=lambda: nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 1)),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        loss=lambda model, batch: (model(batch[0]) - batch[1]).square().mean(),
        data=data,
        batch_size=4,
        epochs=2,
        evaluate=lambda model: {"weight": next(model.parameters()).norm()},
    ).run()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.world_of_one", description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("nccl_sync", "nccl_cadence"))
    parser.add_argument("--cpu", action="store_true", help="rehearse on the processor, over gloo")
    options = parser.parse_args(argv)
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        outcome = ForkedWorld(Path(folder), options.mode, {"here": [0]}, gpu=not options.cpu).run(train)
        result = outcome.result
    found = {"mode": result.mode, "collective": result.collective, "samples": result.samples, "rounds": result.rounds}
    print(json.dumps(found))
    wanted = ("gloo" if options.cpu else "nccl", 128)
    return 0 if (result.collective, result.samples) == wanted else 1


if __name__ == "__main__":
    sys.exit(main())

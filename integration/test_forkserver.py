"""The ranks of one host, forked from one process that has imported torch: they train as executed ones do."""

from __future__ import annotations

import ast
import re
from typing import Any

from integration.conftest import Make

from flodl_wire import environ

TRAIN = """
import os, random
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from flodl_planes import Trainer

if __name__ == "__main__":
    drawn = [torch.initial_seed(), float(np.random.rand()), random.random()]
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    told = {"drawn": drawn, "worker": [len(batch[0]) for batch in loader], "threads": torch.get_num_threads()}
    torch.manual_seed(0)
    result = Trainer(
        model=lambda: torch.nn.Linear(1, 1), optimizer=lambda p: torch.optim.SGD(p, lr=1e-4), batch_size=4, epochs=2,
        loss=lambda model, batch: model(batch[0].float()[:, None]).square().mean(),
        data=TensorDataset(torch.arange(64)),
    ).run()
    print("told", {**told, "losses": [epoch.loss for epoch in result.epochs]}, flush=True)
"""


def test_forked_ranks_train_to_the_same_bits_and_draw_their_own_lots(project: Make) -> None:
    made = project(train={"run": "python train.py", "mode": "cpu_sync"})
    (made.folder / "train.py").write_text(TRAIN)
    told: dict[str, list[dict[str, Any]]] = {}
    for way in ("1", "0"):
        run = made.start("@one", "train", env={environ.FORKSERVER: way, environ.NET_TIMEOUT_SCALE: "1"})
        run.done(within=110)
        assert ("importing torch, once for all ranks" in run.text) == (way == "1")
        told[way] = [ast.literal_eval(text) for text in re.findall(r"told (\{.*\})", run.text)]
    for one, other in told.values():
        assert all(a != b for a, b in zip(one.pop("drawn"), other.pop("drawn"), strict=True))
    assert len(told["1"]) == 2 and told["1"] == told["0"]

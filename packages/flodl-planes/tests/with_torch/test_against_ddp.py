"""cpu_sync against the reference nobody here wrote: torch's DistributedDataParallel over gloo, fed the same batches."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from flodl_planes import Trainer, local_cluster
from flodl_planes.rank.permutation import order

STEPS, BATCH, SEED = 20, 8, 7


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Linear(24, 3))


def samples(world: int) -> TensorDataset:
    stream = torch.Generator().manual_seed(1)
    count = STEPS * BATCH * world
    return TensorDataset(torch.randn(count, 10, generator=stream), torch.randn(count, 3, generator=stream))


def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def ours(folder: Path, world: int, momentum: float) -> None:
    trainer = Trainer(
        model=build_model,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=momentum),
        loss=loss,
        data=samples(world),
        batch_size=BATCH,
        epochs=1,
        seed=SEED,
    )
    trainer.run()
    torch.save(dict(trainer.model.named_parameters()), folder / f"ours-{local_cluster().rank}.pt")


def reference(folder: Path, world: int, momentum: float, rank: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = dist.FileStore(str(folder / "rendezvous"), world)
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    torch.manual_seed(SEED)
    model = build_model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 wants another name for it, which 2.12 does not know
        parallel = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05, momentum=momentum)
    data = samples(world)
    dealt = torch.from_numpy(order(len(data), SEED, 0))
    for step in range(STEPS):
        start = (step * world + rank) * BATCH
        optimizer.zero_grad()
        loss(parallel, list(data[dealt[start : start + BATCH]])).backward()
        optimizer.step()
    torch.save(dict(model.named_parameters()), folder / f"ddp-{rank}.pt")
    dist.barrier()
    os._exit(0)  # leaving the group now and then never returns: gloo's thread wants the GIL that its joiner holds


@pytest.mark.parametrize(("world", "momentum"), [(2, 0.0), (2, 0.9), (3, 0.9)])
def test_cpu_sync_is_ddp_to_1e_5_after_20_steps(
    small_world: Any, together: Any, tmp_path: Path, world: int, momentum: float
) -> None:
    outcome = small_world.run(lambda: ours(tmp_path, world, momentum), world, "cpu_sync")
    assert outcome.codes == dict.fromkeys(range(world), 0), outcome.output

    together([partial(reference, tmp_path, world, momentum, rank) for rank in range(world)])
    theirs = torch.load(tmp_path / "ddp-0.pt")
    for rank in range(world):
        mine = torch.load(tmp_path / f"ours-{rank}.pt")
        assert mine.keys() == theirs.keys()
        for name, parameter in theirs.items():
            torch.testing.assert_close(mine[name], parameter, rtol=0, atol=1e-5)


def test_the_same_seed_twice_gives_the_same_bits(small_world: Any, tmp_path: Path) -> None:
    found = []
    for turn in ("first", "second"):
        (tmp_path / turn).mkdir()
        outcome = small_world.run(lambda turn=turn: ours(tmp_path / turn, 2, 0.9), 2, "cpu_sync")
        assert outcome.codes == {0: 0, 1: 0}, outcome.output
        found.append([torch.load(tmp_path / turn / f"ours-{rank}.pt") for rank in range(2)])
    for name, parameter in found[0][0].items():
        assert all(torch.equal(parameter, other[name]) for run in found for other in run)

"""DiLoCo as a user asks for it, against DiLoCo written down in plain torch on the very same batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from flodl_planes import Trainer, local_cluster

BATCH, SEED, SAMPLES, EPOCHS = 8, 3, 240, 4


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))


def inner(parameters: Any) -> torch.optim.Optimizer:
    # With torch's own eps a gradient that is all rounding takes a whole step, wherever the sums were rounded to.
    return torch.optim.AdamW(parameters, lr=0.01, eps=1e-3)


def samples() -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    stream = torch.Generator().manual_seed(1)
    return [(i, torch.randn(6, generator=stream), torch.randn(2, generator=stream)) for i in range(SAMPLES)]


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch[1]), batch[2])


def ours(folder: Path) -> None:
    """Trains, and writes down which samples each batch of each window held."""
    done = []
    with Trainer(
        model=build_model, optimizer=inner, data=samples(), batch_size=BATCH, epochs=EPOCHS, seed=SEED, outer="nesterov"
    ) as t:
        for _ in t.epochs():
            for batch in t.batches():
                assert t._plan is not None
                done.append((t._plan.window, batch[0].tolist()))
                t.backward(loss(t.model, batch))
                t.step()
    rank = local_cluster().rank
    (folder / f"batches-{rank}.json").write_text(json.dumps(done))
    torch.save(dict(t.model.named_parameters()), folder / f"ours-{rank}.pt")


def diloco(batches: list[list[tuple[int, list[int]]]]) -> tuple[nn.Module, int]:
    """The paper's algorithm with a fresh inner optimizer per round: the model, and how many rounds it took."""
    data = samples()
    torch.manual_seed(SEED)
    model = build_model()
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    windows = sorted({window for each in batches for window, _ in each})
    for window in windows:
        ends, steps = [], []
        for each in batches:
            worker = build_model()
            worker.load_state_dict(model.state_dict())
            optimizer = inner(worker.parameters())
            mine = [indices for number, indices in each if number == window]
            for indices in mine:
                optimizer.zero_grad()
                chosen = [data[i] for i in indices]
                batch = (None, torch.stack([x for _, x, _ in chosen]), torch.stack([y for _, _, y in chosen]))
                loss(worker, batch).backward()
                optimizer.step()
            ends.append([p.detach() for p in worker.parameters()])
            steps.append(len(mine))
        for index, parameter in enumerate(model.parameters()):
            average = sum(n * end[index] for n, end in zip(steps, ends, strict=True)) / sum(steps)
            parameter.grad = parameter.detach() - average
        outer.step()
    return model, len(windows)


def test_diloco_is_plain_torchs_for_five_rounds_and_more(small_world: Any, tmp_path: Path) -> None:
    inner([nn.Parameter(torch.zeros(1))]).step()  # what torch loads at a first step, once for all ranks that are forked
    outcome = small_world.run(lambda: ours(tmp_path), 2, "cpu_cadence")
    assert outcome.codes == {0: 0, 1: 0}, outcome.output
    batches = [json.loads((tmp_path / f"batches-{rank}.json").read_text()) for rank in range(2)]
    model, rounds = diloco(batches)
    assert rounds >= 5
    for rank in range(2):
        mine = torch.load(tmp_path / f"ours-{rank}.pt")
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(mine[name], parameter, rtol=0, atol=2e-5)

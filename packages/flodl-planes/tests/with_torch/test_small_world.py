"""The Trainer as a rank: real hub, real relay, models of every awkward kind, and scripts that go wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from flodl_planes import Trainer, local_cluster
from flodl_wire.hub_messages import EpochDone, Finished, HubFailed

SAMPLES = 59  # prime, so no share comes out even; its last batch has 3 samples (BatchNorm cannot train on 1)


class Numbers(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Sample i is i; `asked` writes down what this rank has been dealt."""

    def __init__(self, asked: Path | None = None) -> None:
        self.asked = asked

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.asked:
            with self.asked.open("a") as file:
                print(index, file=file)
        return torch.tensor(index % 16), torch.tensor([index / SAMPLES])


class Awkward(nn.Module):
    """Tied weights, a frozen part, BatchNorm's float and integer buffers, and a buffer that does not travel."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.norm = nn.BatchNorm1d(8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.back = nn.Linear(8, 16, bias=False)
        self.back.weight = self.embedding.weight
        self.out = nn.Linear(16, 1)
        self.register_buffer("passing", torch.ones(1), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.out(self.back(self.frozen(self.norm(self.embedding(text))))) * self.passing


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def trainer(folder: Path, **changed: Any) -> Trainer:
    arguments: dict[str, Any] = {
        "model": Awkward,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        "loss": loss,
        "data": Numbers(folder / f"asked-{local_cluster().rank}"),
        "batch_size": 4,
        "epochs": 2,
        "seed": 3,
        "evaluate": lambda model: {"training": model.training, "norm": model.out.weight.norm()},
        **changed,
    }
    return Trainer(**arguments)


def keep(folder: Path, t: Trainer) -> None:
    torch.save(t.model.state_dict(), folder / f"model-{t.rank}.pt")
    (folder / f"result-{t.rank}.json").write_bytes(msgspec.json.encode(t.result))


def test_a_world_of_one_has_the_numbers_of_a_run_alone(
    small_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script() -> None:
        t = trainer(tmp_path)
        t.run()
        keep(tmp_path, t)

    outcome = small_world.run(script, 1, "cpu_cadence")
    assert outcome.codes == {0: 0}, outcome.output
    alone = trainer(tmp_path)
    alone.run()
    for name, tensor in torch.load(tmp_path / "model-0.pt").items():
        assert torch.equal(alone.model.state_dict()[name], tensor), name


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async", "nccl_cadence"])
def test_two_ranks_share_an_awkward_model_in_a_loop_of_their_own(small_world: Any, tmp_path: Path, mode: str) -> None:
    """Own loop, workers, weights loaded (and bound anew) mid-way; every sample of every epoch exactly once."""

    def script() -> None:
        with trainer(tmp_path, loss=None, workers=local_cluster().rank, anchor=2) as t:
            for epoch in t.epochs():
                for batch in t.batches():
                    t.backward(loss(t.model, batch))
                    torch.nn.utils.clip_grad_norm_(t.model.parameters(), 1.0)
                    t.step()
                if epoch == 0:
                    t.model.load_state_dict(t.model.state_dict(), assign=t.rank == 1)
        keep(tmp_path, t)

    outcome = small_world.run(script, 2, mode)
    assert outcome.codes == {0: 0, 1: 0}, outcome.output
    assert outcome.output == {0: "", 1: ""}

    first, second = (torch.load(tmp_path / f"model-{rank}.pt") for rank in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    torch.manual_seed(3)
    torch.testing.assert_close(first["frozen.weight"], Awkward().frozen.weight.detach())
    asked = [int(line) for rank in (0, 1) for line in (tmp_path / f"asked-{rank}").read_text().split()]
    assert sorted(asked) == sorted([*range(SAMPLES)] * 2)

    result = outcome.said(Finished)[0].result
    assert (result.verdict, result.samples, result.world_size) == ("done", 2 * SAMPLES, 2)
    assert [epoch.eval["training"] for epoch in result.epochs] == [0.0, 0.0]
    assert len(outcome.said(EpochDone)) == 2
    assert (tmp_path / "result-0.json").read_bytes() == (tmp_path / "result-1.json").read_bytes()

    checkpoint = load_file(small_world.paths / "run" / "checkpoint.safetensors")
    Awkward().load_state_dict(checkpoint, strict=True)
    assert all(torch.equal(first[name], checkpoint[name]) for name in first)


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.3))

    def forward(self, number: torch.Tensor) -> torch.Tensor:
        return (number * self.slope).unsqueeze(1)


@pytest.mark.parametrize("mode", ["cpu_sync", "cpu_cadence"])
def test_the_loss_of_an_epoch_is_the_mean_over_its_samples_whoever_had_them(
    small_world: Any, tmp_path: Path, mode: str
) -> None:
    """Nobody learns, so that it is known what it should be; the last batch is short, and shares are uneven."""

    def script() -> None:
        still: dict[str, Any] = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.0), "evaluate": None}
        trainer(tmp_path, model=Line, **still).run()

    outcome = small_world.run(script, 3, mode)
    assert outcome.codes == {0: 0, 1: 0, 2: 0}, outcome.output
    data = [Numbers()[index] for index in range(SAMPLES)]
    whole = loss(Line(), [torch.stack(column) for column in zip(*data, strict=True)]).item()
    result = outcome.said(Finished)[0].result
    assert [epoch.loss for epoch in result.epochs] == [pytest.approx(whole, rel=1e-5)] * 2


def test_an_error_in_one_ranks_script_is_its_own_traceback_and_the_runs_first_cause(
    small_world: Any, tmp_path: Path
) -> None:
    def script() -> None:
        def failing(model: nn.Module, batch: Any) -> torch.Tensor:
            if local_cluster().rank == 1:
                raise ZeroDivisionError("a flaw in the user's loss")
            return loss(model, batch)

        trainer(tmp_path, loss=failing).run()

    outcome = small_world.run(script, 2, "cpu_cadence")
    failed = outcome.said(HubFailed)[0]
    assert failed.rank == 1 and "a flaw in the user's loss" in f"{failed.what} {failed.why}"
    assert outcome.codes[1] == 1 and "Traceback" in outcome.output[1] and "ZeroDivisionError" in outcome.output[1]
    assert outcome.codes[0] != 0 and "Traceback" not in outcome.output[0]


def test_scripts_that_disagree_are_refused_by_the_term(small_world: Any, tmp_path: Path) -> None:
    def script() -> None:
        trainer(tmp_path, batch_size=4 + local_cluster().rank).run()

    outcome = small_world.run(script, 2, "cpu_sync")
    assert "batch_size" in str(outcome.said(HubFailed)[0])
    assert all(code and "Traceback" not in outcome.output[rank] for rank, code in outcome.codes.items())


def test_a_script_that_leaves_early_fails_the_run(small_world: Any, tmp_path: Path) -> None:
    def script() -> None:
        with trainer(tmp_path) as t:
            for _ in t.epochs():
                for batch in t.batches():
                    t.backward(loss(t.model, batch))
                    t.step()
                    if t.rank == 0:
                        sys.exit(3)

    outcome = small_world.run(script, 2, "cpu_cadence")
    assert outcome.said(HubFailed)[0].rank == 0
    assert outcome.codes[0] == 3

"""The Trainer's conveniences as a script sees them, alone and in a world: callbacks, precision, schedules, and work
that is not finite.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from flodl_planes import Trainer, local_cluster
from flodl_planes.rank.permutation import order
from flodl_wire.faults import Refused
from flodl_wire.hub_messages import Finished, HubFailed, Notice

STREAM = torch.Generator().manual_seed(0)
X = torch.randn(64, 4, generator=STREAM)
DATA = TensorDataset(X, X.sum(1, keepdim=True))
pytestmark = pytest.mark.usefixtures("here")


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch[0]).float(), batch[1])


def trainer(**changed: Any) -> Trainer:
    arguments: dict[str, Any] = {
        "model": lambda: nn.Linear(4, 1),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "loss": loss,
        "data": DATA,
        "batch_size": 4,
        "epochs": 2,
        **changed,
    }
    return Trainer(**arguments)


def test_alone_callbacks_come_in_order_on_the_model_as_it_is() -> None:
    seen: list[Any] = []

    def on_epoch(model: nn.Module, epoch: int, metrics: dict[str, float]) -> None:
        assert not model.training and not torch.is_grad_enabled()
        seen.append((epoch, metrics))

    trainer(evaluate=lambda model: {"a": 1.0}, on_epoch=on_epoch).run()
    trainer(on_epoch=on_epoch).run()
    assert seen == [(0, {"a": 1.0}), (1, {"a": 1.0}), (0, {}), (1, {})]


def test_alone_a_checkpoint_calls_back_too() -> None:
    seen: list[int] = []
    trainer(epochs=3, checkpoint_every=2, on_checkpoint=lambda model, epoch: seen.append(epoch)).run()
    assert seen == [2, 2], "behind the second epoch, and at the end"


def test_a_loop_of_ones_own_with_precision_and_gathering_gives_the_very_same_weights() -> None:
    wishes: dict[str, Any] = {
        "amp": "bf16", "accumulate": 3, "clip_norm": 0.5,
        "scheduler": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 32),
    }  # fmt: skip
    short = trainer(**wishes)
    short.run()
    with trainer(**wishes, loss=None) as t:
        for _ in t.epochs():
            for batch in t.batches():
                with t.autocast():
                    value = loss(t.model, batch)
                t.backward(value)
                t.step()
    assert torch.equal(short.model.weight, t.model.weight)
    assert short.optimizer.param_groups[0]["lr"] == t.optimizer.param_groups[0]["lr"] < 0.1


def test_a_world_calls_back_on_one_rank_and_saves_that_ranks_state(small_world: Any, here: Path) -> None:
    def script() -> None:
        def note(word: str) -> Any:
            def write(model: nn.Module, epoch: int, *_: Any) -> None:
                with (here / "called").open("a") as file:
                    print(word, local_cluster().rank, epoch, file=file)

            return write

        t = trainer(
            on_epoch=note("epoch"), on_checkpoint=note("checkpoint"), callback_rank=1, checkpoint_every=1, accumulate=2,
            clip_norm=1.0, amp="bf16", lr_scale_ratio=1.0,
            scheduler=lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, 16),
        )  # fmt: skip
        t.run()
        (here / f"lr-{t.rank}").write_text(json.dumps(t.optimizer.param_groups[0]["lr"]))

    outcome = small_world.run(script, 2, "cpu_cadence")
    assert outcome.codes == {0: 0, 1: 0}, outcome.output
    called = (here / "called").read_text().splitlines()
    assert [line for line in called if line.startswith("epoch")] == ["epoch 1 0", "epoch 1 1"]
    assert {line.split()[1] for line in called} == {"1"} and "checkpoint 1 1" in called
    rates = [json.loads((here / f"lr-{rank}").read_text()) for rank in (0, 1)]
    assert all(rate == pytest.approx(0.2 * 0.5, rel=0.1) for rate in rates), "both at the schedule's end, scaled by two"


@pytest.mark.parametrize("mode", ["cpu_sync", "nccl_sync"])
def test_in_lockstep_ranks_are_averaged_after_each_step_of_gathered_batches(
    small_world: Any, here: Path, mode: str
) -> None:
    def script() -> None:
        t = trainer(epochs=1, accumulate=4)
        t.run()
        torch.save(t.model.state_dict(), here / f"model-{t.rank}.pt")

    outcome = small_world.run(script, 2, mode)
    assert outcome.codes == {0: 0, 1: 0}, outcome.output
    assert outcome.said(Finished)[0].result.rounds == 2
    torch.manual_seed(0)
    plain = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for half in order(64, 0, 0).reshape(2, 32):
        loss(plain, DATA[torch.from_numpy(half)]).backward()
        optimizer.step()
        optimizer.zero_grad()
    for rank in (0, 1):
        torch.testing.assert_close(torch.load(here / f"model-{rank}.pt"), dict(plain.state_dict()))


class Poison:
    """Rank 1's gradients are no numbers, once."""

    def __init__(self) -> None:
        self.done = 0

    def __call__(self, model: nn.Module, batch: Any) -> torch.Tensor:
        self.done += 1
        value = loss(model, batch)
        return value * torch.nan if local_cluster().rank == 1 and self.done == 2 else value


@pytest.mark.parametrize("mode", ["cpu_sync", "cpu_cadence", "cpu_async", "nccl_cadence"])
def test_work_that_is_not_finite_is_left_out_and_the_rank_goes_on(small_world: Any, here: Path, mode: str) -> None:
    def script() -> None:
        t = trainer(loss=Poison(), nan="skip", anchor=2)
        t.run()
        torch.save(t.model.state_dict(), here / f"model-{t.rank}.pt")

    outcome = small_world.run(script, 2, mode)
    assert outcome.codes == {0: 0, 1: 0}, outcome.output
    result = outcome.said(Finished)[0].result
    assert result.undone > 0 and result.verdict == "done"
    assert any("weight" in notice.text and "left out" in notice.text for notice in outcome.said(Notice))
    first, second = (torch.load(here / f"model-{rank}.pt") for rank in (0, 1))
    assert torch.isfinite(first["weight"]).all() and torch.equal(first["weight"], second["weight"])
    assert "its optimizer anew" in outcome.output[1]


def test_it_ends_the_run_unless_told_otherwise(small_world: Any) -> None:
    outcome = small_world.run(lambda: trainer(loss=Poison()).run(), 2, "cpu_sync")
    failed = outcome.said(HubFailed)[0]
    assert (failed.code, failed.rank) == ("not-finite", 1) and "first weight" in failed.why


def test_a_world_in_fp16_leaves_its_gradient_scale_in_the_checkpoint_and_goes_on_with_it(
    small_world: Any, here: Path
) -> None:
    def script(epochs: int, path: str | None) -> None:
        with trainer(amp="fp16", epochs=epochs, resume=path, callback_rank=0) as t:
            scales = [t._stepper._scaler.get_scale()]
            for _ in t.epochs():
                for batch in t.batches():
                    with t.autocast():
                        value = 1e3 * loss(t.model, batch)
                    t.backward(value)
                    t.step()
            (here / f"scales-{epochs}-{t.rank}").write_text(json.dumps([*scales, t._stepper._scaler.get_scale()]))

    def scales(epochs: int, rank: int) -> list[float]:
        return json.loads((here / f"scales-{epochs}-{rank}").read_text())

    assert small_world.run(lambda: script(1, None), 2, "cpu_sync").codes == {0: 0, 1: 0}
    first, last = scales(1, 0)
    assert last < first, "steps were left out until the scale fitted"
    kept = str(small_world.paths / "run" / "checkpoint.safetensors")
    again = small_world.run(lambda: script(2, kept), 2, "cpu_sync")
    assert again.codes == {0: 0, 1: 0}, again.output
    assert [scales(2, rank)[0] for rank in (0, 1)] == [last] * 2


def test_a_callback_that_cannot_be_called_is_refused() -> None:
    for name in ("on_epoch", "on_checkpoint"):
        with pytest.raises(Refused, match=f"cannot train with {name}="):
            trainer(**{name: 3})
    with pytest.raises(Refused, match="nothing that has step"):
        trainer(scheduler=lambda optimizer: None).run()

"""Steps with all conveniences, and everything that they depend on saved and put back without pickle."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from flodl_planes.plane.layout import lay_out
from flodl_planes.rank import seeds, state_tree
from flodl_planes.rank.finite import Finite
from flodl_planes.rank.keeper import Keeper
from flodl_planes.rank.schema import Adopted, slots_of
from flodl_planes.rank.stepper import Stepper
from flodl_planes.rank.wishes import Conveniences
from flodl_wire.faults import Broken, Fault, Refused
from flodl_wire.plane_messages import Plan

CPU = torch.device("cpu")
Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def stepper(make: Make = sgd, world: int = 1, **wishes: Any) -> tuple[Stepper, nn.Linear]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    parameters = list(model.parameters())
    return Stepper(make(parameters), parameters, CPU, Conveniences(**wishes), world), model


def plan(step: int = 0, world_batches: int = 0, epoch: int = 0) -> Plan:
    return Plan(0, epoch, [[0, 8]], step=step, world_batches=world_batches)


def work(made: Stepper, model: nn.Linear, batches: int, scale: float = 1.0) -> None:
    for number in range(batches):
        x = torch.full((2, 3), float(number + 1))
        with made.autocast():
            loss = model(x).float().pow(2).mean() * scale
        made.backward(loss)
        made.step()
        made.counted()


@pytest.mark.parametrize("many", [2, 4])
def test_gathered_gradients_are_those_of_one_large_batch(many: int) -> None:
    gathered, one = stepper(accumulate=many)
    single, other = stepper()
    gathered.begin(plan(), many)
    work(gathered, one, many)
    single.begin(plan(), 1)
    loss = torch.stack([other(torch.full((2, 3), float(k + 1))).pow(2).mean() for k in range(many)]).mean()
    single.backward(loss)
    single.step()
    torch.testing.assert_close(one.weight, other.weight)


def test_what_is_gathered_at_a_windows_end_becomes_a_step_of_its_own_size() -> None:
    gathered, one = stepper(accumulate=4)
    plain, other = stepper(accumulate=2)
    gathered.begin(plan(), 2)
    work(gathered, one, 2)
    assert gathered.gathered == 2
    gathered.flush()
    work(plain, other, 2)
    torch.testing.assert_close(one.weight, other.weight)
    assert gathered.gathered == 0


@pytest.mark.parametrize("amp", [None, "fp16"])
def test_clipping_bounds_the_step(amp: str | None) -> None:
    made, model = stepper(clip_norm=0.5, amp=amp)
    if amp:
        made.restore({**made.state(), "scaler": {**made.state()["scaler"], "scale": 8.0}})  # one that fits the loss
    before = torch.cat([model.weight.detach().flatten(), model.bias.detach()])
    work(made, model, 1, scale=100.0)
    after = torch.cat([model.weight.detach().flatten(), model.bias.detach()])
    assert float((after - before).norm()) == pytest.approx(0.1 * 0.5, rel=1e-4)


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_trains_and_keeps_float32_weights(amp: str) -> None:
    made, model = stepper(amp=amp)
    with made.autocast():
        assert model(torch.ones(2, 3)).dtype in (torch.bfloat16, torch.float16)
    before = model.weight.detach().clone()
    work(made, model, 20)  # the first ones find the scale
    assert model.weight.dtype == torch.float32 and not torch.equal(before, model.weight)


def test_a_schedule_for_one_device_means_the_same_in_a_world_of_four() -> None:
    def schedule(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone, one = stepper(scheduler=schedule)
        alone.begin(plan(), 12)
        work(alone, one, 12)
        world, other = stepper(scheduler=schedule)
        world.begin(plan(0, 8), 2)
        work(world, other, 2)
        assert world.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 9)
        world.begin(plan(12, 8), 2)  # others did four more than they were thought to
    assert world.optimizer.param_groups[0]["lr"] == alone.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 13)


def test_a_schedule_over_epochs_moves_with_them() -> None:
    made, model = stepper(scheduler=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5), scheduler_by="epoch")
    made.begin(plan(), 2)
    work(made, model, 2)
    assert made.learning_rate == 0.1
    made.begin(plan(epoch=2), 2)
    assert made.learning_rate == pytest.approx(0.025)


def test_a_schedule_has_come_to_the_windows_end_with_the_last_batch() -> None:
    made, model = stepper(scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)))
    made.begin(plan(0, 15), 11)  # in floats eleven times 15/11 are a hair less than 15
    work(made, model, 11)
    assert made.learning_rate == pytest.approx(0.1 / 16)


def test_the_learning_rate_is_the_largest_that_counts() -> None:
    made, _ = stepper(lambda p: torch.optim.SGD([{"params": p[:1], "lr": 0.01}, {"params": p[1:], "lr": 0.2}]))
    assert made.learning_rate == 0.2
    made.optimizer.param_groups[1]["lr"] = math.nan
    assert made.learning_rate == 0.01
    made.optimizer.param_groups[0]["lr"] = math.inf
    assert made.learning_rate is None


def test_the_linear_rule_is_off_unless_asked_for() -> None:
    assert stepper(world=4)[0].learning_rate == 0.1
    assert stepper(world=4, lr_scale_ratio=0.5)[0].learning_rate == pytest.approx(0.25)


def test_a_schedule_comes_to_the_end_of_a_window_that_has_nothing_for_this_rank() -> None:
    made, _ = stepper(
        scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)), accumulate=2
    )
    made.begin(plan(8, world_batches=6), 0)
    made.flush()
    assert made.learning_rate == pytest.approx(0.1 / 8), "seven steps of all ranks"


def test_a_schedule_that_wants_a_metric_is_refused() -> None:
    with pytest.raises(Refused, match="moves by a metric"):
        stepper(scheduler=lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))


MAKERS: dict[str, Make] = {
    "adamw": lambda p: torch.optim.AdamW([{"params": p[:1], "lr": 0.01}, {"params": p[1:], "betas": (0.8, 0.9)}]),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_state_put_back_goes_on_bit_for_bit(kind: str) -> None:
    def cosine(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    whole, model = stepper(MAKERS[kind], scheduler=cosine, amp="fp16")
    whole.begin(plan(), 10)
    work(whole, model, 5)
    seeds.plant(11)
    segment = Keeper(whole, CPU, 0, 3).capture()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = torch.rand(4)
    work(whole, model, 5)

    again, other = stepper(MAKERS[kind], scheduler=cosine, amp="fp16")
    other.load_state_dict(weights)
    Keeper(again, CPU, 0, 3).restore(segment.buffer, 0, 0)
    assert torch.equal(torch.rand(4), drawn), "the random streams too"
    again.begin(plan(5), 5)
    work(again, other, 5)
    assert torch.equal(model.weight, other.weight)
    assert whole.learning_rate == again.learning_rate


def test_a_state_of_another_world_has_the_rates_of_this_one() -> None:
    def step(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, 1000)

    large, model = stepper(world=4, lr_scale_ratio=1.0, scheduler=step)
    work(large, model, 2)
    tree = state_tree.unpack(state_tree.pack(large.state())[0].buffer)
    small, other = stepper(world=2, lr_scale_ratio=1.0, scheduler=step)
    small.restore(tree)
    work(small, other, 1)
    assert small.learning_rate == pytest.approx(0.2)


def test_so_has_a_schedule_that_is_made_of_others() -> None:
    def warm_up_then_steps(optimizer: torch.optim.Optimizer) -> Any:
        schedulers = torch.optim.lr_scheduler
        first, then = schedulers.LinearLR(optimizer, 0.5, 1.0, 4), schedulers.StepLR(optimizer, 1000)
        return schedulers.SequentialLR(optimizer, [first, then], milestones=[4])

    large, model = stepper(world=4, lr_scale_ratio=1.0, scheduler=warm_up_then_steps)
    work(large, model, 2)
    tree = state_tree.unpack(state_tree.pack(large.state())[0].buffer)
    small, _ = stepper(world=2, lr_scale_ratio=1.0, scheduler=warm_up_then_steps)
    small.restore(tree)
    small.begin(plan(6), 1)
    assert small.learning_rate == pytest.approx(0.2)


def test_a_schedule_with_rates_of_its_own_is_refused_beside_the_linear_rule() -> None:
    def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=10)

    stepper(scheduler=one_cycle, world=4)
    with pytest.raises(Refused, match="cannot train with lr_scale_ratio and OneCycleLR"):
        stepper(scheduler=one_cycle, lr_scale_ratio=1.0, world=4)


def test_a_gradient_scale_comes_back_from_broken_batches() -> None:
    made, model = stepper(amp="fp16")
    for _ in range(10):
        work(made, model, 20, scale=math.inf)
        before = model.weight.detach().clone()
        work(made, model, 1, scale=1e-3)
        assert model.weight.isfinite().all() and not torch.equal(before, model.weight)


def test_gradients_that_are_finite_at_no_scale_end_the_run() -> None:
    made, model = stepper(amp="fp16")
    with pytest.raises(Broken, match="no step's gradients are finite any more"):
        work(made, model, 100, scale=math.nan)


def test_another_optimizer_begins_anew_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    adam, model = stepper(MAKERS["adamw"])
    work(adam, model, 1)
    plain, _ = stepper()
    plain.restore(state_tree.unpack(state_tree.pack(adam.state())[0].buffer))
    assert "the optimizer begins anew" in capsys.readouterr().err


def test_a_state_without_a_gradient_scaler_is_no_misfit(capsys: pytest.CaptureFixture[str]) -> None:
    plain, model = stepper()
    work(plain, model, 1)
    scaled, _ = stepper(amp="fp16")
    scaled.restore(state_tree.unpack(state_tree.pack(plain.state())[0].buffer))
    assert capsys.readouterr().err == ""


def test_a_tree_keeps_kinds_and_names_what_it_cannot_take() -> None:
    tree = {"a": (1, 2.5, None, True, "x"), 3: [torch.arange(3), torch.tensor(1.5, dtype=torch.bfloat16)], "f": len}
    segment, left_out = state_tree.pack(tree)
    back = state_tree.unpack(segment.buffer)
    assert left_out == ["f"] and back["a"] == tree["a"] and back["f"] is None
    assert torch.equal(back[3][0], torch.arange(3)) and back[3][1].dtype == torch.bfloat16
    with pytest.raises(Fault):
        state_tree.unpack(segment.buffer[:-1])


def test_the_first_tensor_that_is_not_finite_is_named() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1).to(torch.bfloat16))
    slots = slots_of(model)
    specs = [slot.spec for slot in slots]
    layout = lay_out(specs)
    live = bytearray(layout.total_bytes)
    Adopted(slots, layout.offsets, live, CPU)
    finite = Finite(layout, specs, live)
    assert finite.culprit() == ""
    with torch.no_grad():
        model[0].weight.fill_(3e38)
        assert finite.culprit() == "", "a sum that overflows is no flaw"
        model[2].bias.fill_(torch.inf)
    assert finite.culprit() == "2.bias"
    with torch.no_grad():
        model[1].running_var[0] = torch.nan
    assert finite.culprit() in ("1.running_var", "2.bias")

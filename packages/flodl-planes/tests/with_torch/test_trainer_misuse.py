"""Every way to hold the Trainer wrong, and what is said of each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lone_trainer import DATA, X, build, loss, trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from flodl_wire.faults import Fault, Refused

pytestmark = pytest.mark.usefixtures("here")


def test_a_dataloader_is_refused_before_anything_starts(here: Path) -> None:
    with pytest.raises(Refused, match="cannot train with data=DataLoader"):
        trainer(data=DataLoader(DATA))
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda model, batch: F.mse_loss(model(batch[0]), batch[1], reduction="none"), r"has the shape \[8, 1\]"),
        (lambda model, batch: loss(model, batch).item(), "is a float"),
        (lambda model, batch: None, "is None"),
        (lambda model, batch: (loss(model, batch), 1), "is a tuple"),
        (lambda model, batch: torch.zeros(()), "does not depend on any parameter"),
    ],
)
def test_a_loss_that_cannot_be_trained_on_says_why(made: Callable[..., Any], why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        trainer(loss=made).run()
    assert refused.value.fix


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model": lambda: 3}, "returned no torch.nn.Module"),
        ({"model": None}, "cannot be called"),
        ({"model": lambda: nn.ReLU()}, "no parameter that learns"),
        ({"optimizer": lambda parameters: None}, "nothing that has step"),
        (
            {"optimizer": lambda parameters: [torch.optim.Adam(parameters)] * 2},
            r"\[Adam \( Parameter Group .*2 of them",
        ),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)], lr=1.0)}, "cannot be called"),
        ({"optimizer": torch.optim.LBFGS}, "needs closure"),
        (
            {"optimizer": lambda parameters: torch.optim.SGD(build().parameters(), lr=1.0)},
            "6 of its tensors are not in",
        ),
        ({"optimizer": lambda parameters: torch.optim.Adam([*parameters, nn.Parameter(X)])}, "1 of its tensors is not"),
        ({"evaluate": lambda model: 0.9}, "returned float"),
        ({"evaluate": lambda model: {"map": torch.zeros(3)}}, "'map' is no number"),
        ({"loss": None}, "has no loss"),
        ({"loss": "mse"}, "cannot be called"),
        ({"data": DATA.tensors[0][:0]}, "it is empty"),
    ],
)
def test_an_argument_that_cannot_be_meant_says_why(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        trainer(**changed).run()
    assert refused.value.fix


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_module_is_refused_alone_too() -> None:
    with pytest.raises(Refused, match="has no shape yet"):
        trainer(model=lambda: nn.Sequential(nn.LazyLinear(1))).run()


def test_a_trainer_runs_once() -> None:
    t = trainer(epochs=1)
    t.run()
    with pytest.raises(Refused, match="has run already"):
        t.run()


def test_a_loop_that_breaks_off_its_batches_is_told(here: Path) -> None:
    with pytest.raises(Refused, match=r"loop over t.batches\(\) was left"), trainer() as t:
        for _ in t.epochs():
            for batch in t.batches():
                t.backward(loss(t.model, batch))
                t.step()
                break
    assert '"failed"' in (here / "runs" / "latest" / "result.json").read_text()


def test_a_loop_that_breaks_off_its_epochs_is_told() -> None:
    with pytest.raises(Refused, match=r"loop over t.epochs\(\) was left"), trainer() as t:
        for _ in t.epochs():
            for batch in t.batches():
                t.backward(loss(t.model, batch))
                t.step()
            break


@pytest.mark.parametrize("patience", [1000, 3])
def test_a_loop_that_never_steps_is_told(monkeypatch: pytest.MonkeyPatch, patience: int) -> None:
    """At the epoch's end, or in the middle of one that is longer than anybody gathers."""
    monkeypatch.setattr("flodl_planes.rank.trainer.GIVE_UP", patience)
    batches = 0
    with pytest.raises(Refused, match=r"t.step\(\) never") as refused, trainer(loss=None, epochs=2) as t:
        for _ in t.epochs():
            for batch in t.batches():
                batches += 1
                t.backward(loss(t.model, batch))
    assert batches == min(patience + 1, -(-len(DATA) // 8))
    assert "accumulate" in refused.value.fix


def test_a_loop_that_does_nothing_with_its_batches_is_told() -> None:
    with pytest.raises(Refused, match="called neither"), trainer() as t:
        for _ in t.epochs():
            for _ in t.batches():
                pass


def test_calls_outside_their_place_are_told() -> None:
    t = trainer()
    for call in (lambda: next(t.epochs()), lambda: next(t.batches())):
        with pytest.raises(Refused, match="training has not begun"):
            call()
    with pytest.raises(Refused, match="no batch at hand"):
        t.step()
    with pytest.raises(Refused, match="no epoch has begun"), t:
        next(t.batches())


def test_an_uncaught_fault_is_rendered_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    trainer(epochs=1)  # a Trainer's making installs the hook
    fault = Fault("x", "cannot do it", "it is broken", "mend it")
    sys.excepthook(Fault, fault, None)
    assert capsys.readouterr().err == "flodl: cannot do it: it is broken\nfix: mend it\n"

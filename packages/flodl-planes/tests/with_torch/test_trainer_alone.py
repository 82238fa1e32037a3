"""The Trainer in a process of its own: both forms, and the records it leaves."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from lone_trainer import DATA, build, loss, trainer
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import TensorDataset

from flodl_planes import RunResult, Trainer
from flodl_planes.records import checkpoint, run_folder
from flodl_planes.records.checkpoint_writer import CheckpointWriter
from flodl_wire.faults import Broken, Fault, Refused
from flodl_wire.state import State

pytestmark = pytest.mark.usefixtures("here")


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_an_evaluation_may_return_whatever_holds_one_number(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {"loss": torch.tensor([[1.5]]), "array": np.array([2.5]), "scalar": np.float32(3), "flag": True}
    result = trainer(epochs=1, evaluate=lambda model: numbers).run()
    assert result.epochs[0].eval == {"loss": 1.5, "array": 2.5, "scalar": 3.0, "flag": 1.0}
    assert ", evaluated loss 1.5000, array 2.5000, " in capsys.readouterr().err


def test_run_trains_evaluates_each_epoch_and_returns_the_figures() -> None:
    result = trainer().run()
    assert (result.verdict, result.world_size, result.samples, len(result.epochs)) == ("done", 1, 150, 3)
    assert [epoch.samples for epoch in result.epochs] == [50, 50, 50]
    assert all(epoch.loss and epoch.eval for epoch in result.epochs)
    first, last = (result.epochs[k].eval for k in (0, -1))
    assert first and last and last["mse"] < first["mse"]
    assert result.ranks[0].batches == 21 and 0 < result.ranks[0].busy_s <= result.wall_s
    assert "3 epochs, 150 samples" in repr(result) and "\n" not in repr(result)


def test_a_loop_of_ones_own_gives_the_very_same_weights() -> None:
    short = trainer()
    short.run()
    with trainer(loss=None) as t:
        epochs = []
        for epoch in t.epochs():
            epochs.append(epoch)
            for batch in t.batches():
                t.backward(loss(t.model, batch))
                t.step()
    assert epochs == [0, 1, 2] and t.result is not None and t.result.samples == 150
    for one, other in zip(short.model.parameters(), t.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_workers_change_nothing_but_who_loads() -> None:
    plain, loaded = trainer(), trainer(workers=2)
    plain.run()
    loaded.run()
    for one, other in zip(plain.model.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_seed_reaches_the_first_weights() -> None:
    seen = []
    for seed in (1, 1, 2):
        with trainer(seed=seed, loss=None) as t:
            seen.append(t.model[0].weight.detach().clone())
            for _ in t.epochs():
                for batch in t.batches():
                    t.backward(loss(t.model, batch))
                    t.step()
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])


def test_evaluation_leaves_no_trace_in_training() -> None:
    def meddling(model: nn.Module) -> dict[str, float]:
        assert not model.training and not torch.is_grad_enabled()
        return {"noise": torch.rand(()).item(), "nan": math.nan}

    plain, watched = trainer(evaluate=None), trainer(evaluate=meddling)
    plain.run()
    result = watched.run()
    assert watched.model.training
    assert result.epochs[0].eval is not None and list(result.epochs[0].eval) == ["noise"]
    for one, other in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_gradients_may_be_gathered_over_several_batches() -> None:
    with trainer(loss=None, evaluate=None) as t:
        for _ in t.epochs():
            for number, batch in enumerate(t.batches()):
                t.backward(loss(t.model, batch) / 2)
                if number % 2:
                    t.step()
    assert t.result is not None and t.result.ranks[0].batches == 21


def test_a_run_leaves_its_files_and_latest_points_at_them(here: Path) -> None:
    t = trainer()
    result = t.run()
    folder = here / "runs" / "latest"
    assert folder.readlink() == Path(result.run)
    assert json.loads((folder / "result.json").read_text()) == msgspec.to_builtins(result)
    state = msgspec.json.decode((folder / "state.json").read_bytes(), type=State)
    assert (state.phase, state.run, state.joined_ranks) == ("done", result.run, 1)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 2] and rows[2]["eval"] == result.epochs[2].eval
    fresh = build()
    fresh.load_state_dict(load_file(folder / "checkpoint.safetensors"))
    for name, tensor in t.model.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], tensor)


def test_files_go_where_the_variable_says(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLODL_RUN_DIR", str(here / "elsewhere"))
    trainer(epochs=1).run()
    assert (here / "elsewhere" / "runs" / "latest" / "result.json").exists()


def test_a_full_disk_costs_the_records_and_one_sentence_never_the_training(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace = run_folder._replace

    def full(path: Path, data: bytes, **more: Any) -> None:
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(path, data, **more)

    monkeypatch.setattr(run_folder, "_replace", full)
    assert trainer().run().verdict == "done"
    told = [line for line in capsys.readouterr().err.splitlines() if "cannot write" in line]
    assert len(told) == 1 and told[0].endswith("/state.json: No space left on device; training goes on without it")
    assert load_file(here / "runs" / "latest" / "checkpoint.safetensors")


def test_a_checkpoint_that_does_not_fit_is_a_failure_with_its_size(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint.os, "fsync", raising(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(Fault) as caught:
        trainer(epochs=1).run()
    assert "/checkpoint." in caught.value.what and caught.value.why == "No space left on device"
    assert caught.value.fix.startswith("1 MB are needed"), "rounded up"
    latest = here / "runs" / "latest"
    assert json.loads((latest / "result.json").read_bytes())["verdict"] == "failed"
    assert json.loads((latest / "state.json").read_bytes())["phase"] == "failed"
    assert [path.name for path in latest.iterdir() if "checkpoint" in path.name] == [], "no half of one"


def test_a_model_that_fits_where_its_optimizer_does_not_is_kept(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkpoint, "write_beside", raising(Broken("checkpoint-failed", "cannot write x", "full")))
    made = trainer(epochs=1)
    with pytest.raises(Fault):
        made.run()
    latest = here / "runs" / "latest"
    kept = load_file(latest / "checkpoint.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in made.model.state_dict().items())
    assert "what was learned is kept in" in capsys.readouterr().err
    assert [path.name for path in latest.iterdir() if "state-" in path.name] == []


def test_a_folder_in_the_place_of_latest_is_left_alone_and_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "runs" / "latest" / "mine").mkdir(parents=True)
    assert trainer().run().verdict == "done"
    err = capsys.readouterr().err
    assert err.count("latest does not lead to this run: it is a folder, and no link of ours") == 1
    assert sorted(path.name for path in (here / "runs").iterdir() if path.name.startswith((".", "l"))) == ["latest"]
    assert (here / "runs" / "latest" / "mine").is_dir()


def test_tied_weights_stand_in_the_checkpoint_under_each_name(here: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x)).sum(1, keepdim=True)

    trainer(model=Tied, epochs=1).run()
    Tied().load_state_dict(load_file(here / "runs" / "latest" / "checkpoint.safetensors"), strict=True)


@pytest.mark.parametrize(
    ("error", "why"), [(ValueError("bad pixel"), "ValueError: bad pixel"), (KeyboardInterrupt(), "interrupted")]
)
def test_a_script_that_raises_leaves_a_failed_record_and_its_own_error(
    here: Path, error: BaseException, why: str
) -> None:
    def failing(model: nn.Module, batch: Any) -> torch.Tensor:
        raise error

    with pytest.raises(type(error)):
        trainer(loss=failing).run()
    result = msgspec.json.decode((here / "runs" / "latest" / "result.json").read_bytes(), type=RunResult)
    state = msgspec.json.decode((here / "runs" / "latest" / "state.json").read_bytes(), type=State)
    assert (result.verdict, result.why, state.phase) == ("failed", why, "failed")


class Killed(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        if torch.utils.data.get_worker_info() is not None and index == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_loader_that_was_killed_is_told_in_words_not_by_torchs_traceback(here: Path) -> None:
    with pytest.raises(Fault, match=r"cannot load the next batch: .* killed by signal 9"):
        trainer(data=Killed(*DATA.tensors), workers=2).run()
    why = json.loads((here / "runs" / "latest" / "result.json").read_bytes())["why"]
    assert why.startswith("cannot load the next batch") and "signal 9" in why


def test_elsewhere_than_on_a_terminal_each_epoch_is_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    trainer().run()
    out, err = capsys.readouterr()
    assert out == "" and "\x1b" not in err
    assert [line.split(":")[0] for line in err.splitlines()] == [
        "flodl", "epoch 1/3", "epoch 2/3", "epoch 3/3", "flodl",
    ]  # fmt: skip


def test_a_model_that_is_not_finite_any_more_ends_the_run_and_is_not_saved(here: Path) -> None:
    with pytest.raises(Fault, match="cannot go on training: the model is not finite") as caught:
        trainer(loss=lambda model, batch: loss(model, batch) * math.nan, epochs=2, checkpoint_every=1).run()
    assert caught.value.why.startswith("first 0.weight")
    assert json.loads((here / "runs" / "latest" / "result.json").read_bytes())["verdict"] == "failed"
    assert not list((here / "runs" / "latest").glob("checkpoint*"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda model: model.half(), "cannot average 0.weight: it was torch.float32"),
        (lambda model: model[0].__setattr__("weight", nn.Parameter(torch.ones(8, 5))), r"is torch.float32 \[8, 5\]"),
        (lambda model: model.add_module("extra", nn.Linear(1, 1)), "cannot go on training with extra.weight"),
    ],
)
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_model_that_becomes_another_is_refused_and_no_checkpoint_holds_nonsense(
    here: Path, change: Callable[[Any], object], why: str, epoch: int
) -> None:
    whole = {}

    def change_late(t: Trainer) -> None:
        whole.update({name: tensor.clone() for name, tensor in t.model.state_dict().items()})
        change(t.model)

    with pytest.raises(Refused, match=why), trainer(loss=None, checkpoint_every=1) as t:
        for at in t.epochs():
            for number, batch in enumerate(t.batches()):
                t.backward(loss(t.model, batch))
                t.step()
                if at == epoch and number == 6:  # the last batch of an epoch
                    change_late(t)
    path = here / "runs" / "latest" / "checkpoint.safetensors"
    saved = load_file(path) if path.exists() else {}
    assert not saved or epoch or "extra" in why
    for name, tensor in saved.items():
        assert tensor.dtype == whole[name].dtype and (tensor.float() - whole[name].float()).abs().max() < 10


def test_a_checkpoint_that_is_still_being_written_is_left_alone_by_the_next_look(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs may be shorter than a disk is slow."""
    write, further, torn = checkpoint.write, threading.Event(), []

    def slowly(folder: Path, tensors: Any, offsets: Any, average: Any, words: Any) -> Path:
        before = bytes(average)
        if threading.current_thread() is not threading.main_thread():
            further.wait(60)  # until the script waits for us, or is through with its next epoch
            torn.append(bytes(average) != before)
        return write(folder, tensors, offsets, average, words)

    wait = CheckpointWriter.wait

    def waiting(writer: CheckpointWriter, seconds: float | None = None) -> bool:
        if writer.busy:
            further.set()
        return wait(writer, seconds)

    monkeypatch.setattr(checkpoint, "write", slowly)
    monkeypatch.setattr(CheckpointWriter, "wait", waiting)
    trainer(checkpoint_every=1, on_epoch=lambda model, epoch, metrics: epoch and further.set()).run()
    assert torn and not any(torn)

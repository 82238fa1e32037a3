"""Runs that are cut short and go on: alone, in a world, from one to the other, with any number of ranks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from flodl_planes import Trainer, local_cluster
from flodl_planes.records import checkpoint, cursor
from flodl_wire.faults import Fault, Refused
from flodl_wire.hub_messages import Finished, HubFailed, Notice

SAMPLES, BATCH = 60, 4


class Numbers(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Sample i is i; `asked` writes down what has been dealt."""

    def __init__(self, asked: Path | None = None, samples: int = SAMPLES) -> None:
        self.asked, self.samples = asked, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.asked:
            with self.asked.open("a") as file:
                print(index, file=file)
        return torch.randn(4, generator=torch.Generator().manual_seed(index)), torch.tensor([index / SAMPLES])


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))


class Stop(Exception):
    """As if somebody had cut the run short."""


class Loss:
    """Raises before the batch number `after` that this process does, but not before there is the file `behind`."""

    def __init__(
        self, after: int | None = None, error: type[BaseException] = Stop, *, behind: Path | None = None
    ) -> None:
        self.after, self.error, self.behind, self.done = after, error, behind, 0

    def __call__(self, model: nn.Module, batch: Any) -> torch.Tensor:
        if self.done == self.after:
            if self.behind:
                wait_for_file(self.behind)
            raise self.error
        self.done += 1
        return F.mse_loss(model(batch[0]), batch[1])


def wait_for_file(path: Path) -> None:
    end, pause = time.monotonic() + 30, threading.Event()
    while not path.exists():
        assert time.monotonic() < end, f"no {path} in 30 s"
        pause.wait(0.01)


def trainer(**changed: Any) -> Trainer:
    arguments: dict[str, Any] = {
        "model": build,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        "scheduler": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 45),
        "loss": Loss(),
        "data": Numbers(),
        "batch_size": BATCH,
        "epochs": 3,
        "seed": 3,
        **changed,
    }
    return Trainer(**arguments)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weights(t: Trainer) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in t.model.state_dict().values()]


def read(path: Path) -> cursor.Cursor:
    return cursor.decode(checkpoint.read(path).metadata, str(path))


def newest(here: Path) -> Path:
    return here / "runs" / "latest" / "checkpoint.safetensors"


def epoch_rows(folder: Path) -> Iterator[dict[str, Any]]:
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["kind"] == "epoch":
            yield row


def test_a_run_alone_that_was_interrupted_ends_bit_for_bit_as_one_that_was_not(here: Path) -> None:
    whole = trainer()
    whole.run()
    with pytest.raises(KeyboardInterrupt):
        trainer(loss=Loss(20, KeyboardInterrupt)).run()  # in the second epoch, behind its fifth batch
    stood = read(newest(here))
    assert (stood.epoch, stood.merged, stood.reason) == (1, [[0, 20]], "graceful_shutdown")
    again = trainer(resume="latest", data=Numbers(here / "asked"))
    result = again.run()
    assert all(torch.equal(one, other) for one, other in zip(weights(whole), weights(again), strict=True))
    assert len((here / "asked").read_text().split()) == 2 * SAMPLES - 20
    assert [(epoch.epoch, epoch.samples) for epoch in result.epochs] == [(0, 60), (1, 60), (2, 60)]
    assert result.samples == 2 * SAMPLES - 20 and result.resumed.endswith("/checkpoint.safetensors")


def test_a_run_stopped_at_the_very_end_of_an_epoch_does_all_that_follow(here: Path) -> None:
    with pytest.raises(Stop):
        trainer(loss=Loss(15), checkpoint_every=1).run()
    assert (read(newest(here)).epoch, read(newest(here)).merged) == (1, [])
    result = trainer(resume="auto", data=Numbers(here / "asked")).run()
    assert result.ranks[0].batches == 30, "epochs 2 and 3, no step more and none less"
    assert sorted((here / "asked").read_text().split(), key=int) == [str(i // 2) for i in range(2 * SAMPLES)]


class Judging:
    """An evaluation that breaks while `broken` says so."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken

    def __call__(self, model: nn.Module) -> dict[str, float]:
        if self.broken:
            raise Stop
        return {"bias": float(next(model.parameters()).sum())}


@pytest.mark.parametrize(("epochs", "left"), [(1, 0), (2, SAMPLES)])
def test_an_evaluation_that_a_run_alone_did_not_live_to_see_is_the_next_ones_first_work(
    here: Path, capsys: pytest.CaptureFixture[str], epochs: int, left: int
) -> None:
    with pytest.raises(Stop):
        trainer(epochs=epochs, evaluate=Judging(True)).run()
    assert read(newest(here)).unevaluated is not None
    model = load_file(newest(here))
    again = trainer(epochs=epochs, evaluate=Judging(False), resume="auto")
    with again as t:
        began = list(t.epochs()) if not left else [epoch for epoch in t.epochs() for _ in t.batches() if not t.step()]
    assert set(began) == set(range(1, epochs)), "a loop of one's own sees no epoch without batches"
    result = again.result
    assert result is not None and result.samples == left
    bias = float(model["0.weight"].sum())
    assert result.epochs[0].eval == {"bias": pytest.approx(bias, rel=1e-4)}
    assert [row["epoch"] for row in epoch_rows(here / "runs" / "latest")] == list(range(epochs))
    assert ("only the last evaluation is missing" in capsys.readouterr().err) == (not left)
    assert read(newest(here)).reason == "finished"


def test_the_last_evaluation_of_a_world_breaks_and_the_next_world_has_nothing_else_to_do(
    small_world: Any, here: Path
) -> None:
    def script(broken: bool, path: str | None) -> None:
        with trainer(epochs=1, evaluate=Judging(broken), resume=path, checkpoint_every=None) as t:
            for _ in t.epochs():
                for batch in t.batches():
                    t.backward(F.mse_loss(t.model(batch[0]), batch[1]))
                    t.step()
                assert broken, "no epoch is left to see"
            assert t.result is not None

    broken = small_world.run(lambda: script(True, None), 2, "cpu_cadence")
    assert broken.said(HubFailed)
    kept = small_world.paths / "run" / "checkpoint.safetensors"
    assert read(kept).owes_evaluation(1) and read(kept).reason == "run_failed"
    again = small_world.run(lambda: script(False, str(kept)), 3, "cpu_cadence")
    assert set(again.codes.values()) == {0}, again.output
    result = again.said(Finished)[0].result
    assert result.samples == 0 and result.epochs[0].eval is not None
    last = load_file(small_world.paths / "run" / "checkpoint.safetensors")
    assert all(torch.equal(last[name], tensor) for name, tensor in load_file(kept).items())


def test_auto_begins_anew_where_nothing_is_to_be_resumed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trainer(resume="auto", epochs=1).run().samples == SAMPLES
    assert trainer(resume="auto", epochs=1).run().samples == SAMPLES
    assert "is complete: a new one begins" in capsys.readouterr().err
    assert trainer(resume="auto", epochs=2).run().samples == SAMPLES, "more epochs: the last run goes on"


def test_the_variable_outranks_the_script(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer(epochs=1).run()
    monkeypatch.setenv("FLODL_RESUME", "never")
    assert trainer(epochs=2, resume="latest").run().samples == 2 * SAMPLES
    monkeypatch.setenv("FLODL_RESUME", "latest")
    assert trainer(epochs=3).run().samples == SAMPLES


def test_what_cannot_be_resumed_says_why(here: Path) -> None:
    with pytest.raises(Refused, match="no run below"):
        trainer(resume="latest").run()
    trainer(epochs=1).run()
    file = str(newest(here).resolve())
    with pytest.raises(Refused, match="its 1 epochs are done"):
        trainer(resume=file, epochs=1).run()
    with pytest.raises(Fault, match=r"its 3\.weight is F32 1×8, the script's model has 3\.weight"):
        trainer(resume=file, model=lambda: nn.Sequential(*build()[:3], nn.Linear(8, 1).double())).run()
    with pytest.raises(Refused, match="60 samples, the script's data has 40"):
        trainer(resume=file, data=Numbers(samples=40)).run()
    with pytest.raises(Refused, match="there is no such file or folder"):
        trainer(resume="20200101-000000-abcd").run()


def test_a_file_cut_short_costs_a_sentence_and_the_one_before_is_used(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Stop):
        trainer(loss=Loss(35), checkpoint_every=1).run()
    path = newest(here)
    path.write_bytes(path.read_bytes()[:-3])
    result = trainer(resume="latest").run()
    assert "it is cut short" in capsys.readouterr().err
    assert result.epochs[-1].epoch == 2 and result.samples in (SAMPLES, SAMPLES * 2)


def test_a_state_that_is_gone_costs_the_optimizers_moments_only(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer(epochs=1).run()
    for path in newest(here).resolve().parent.glob("checkpoint.state-*"):
        path.unlink()
    assert trainer(resume="latest", epochs=2).run().samples == SAMPLES
    assert "is not there any more" in capsys.readouterr().err


def test_three_ranks_then_two_then_four_then_one_alone_do_every_sample_once(small_world: Any, here: Path) -> None:
    """Each world fails on purpose in the middle of an epoch; the next one goes on with another number of ranks."""
    path, found = None, []
    for number, (ranks, after) in enumerate([(3, 6), (2, 9), (4, None)]):

        def script(number: int = number, after: int | None = after, path: str | None = path) -> None:
            rank = local_cluster().rank
            trainer(
                loss=Loss(after if rank == 0 else None),
                data=Numbers(here / f"asked-{number}-{rank}"),
                resume=path,
                checkpoint_every="0.001s",
            ).run()

        outcome = small_world.run(script, ranks, "cpu_sync")
        folder = small_world.paths / "run"
        if after is None:
            assert set(outcome.codes.values()) == {0}, outcome.output
            result = outcome.said(Finished)[0].result
            assert [epoch.samples for epoch in result.epochs] == [SAMPLES] * 3
        else:
            assert outcome.said(HubFailed)
        path = str(folder / "checkpoint.safetensors")
        found.append(read(Path(path)))
        if number:
            assert any("goes on from" in notice.text for notice in outcome.said(Notice)), outcome.told
    assert [stood.world_size for stood in found] == [3, 2, 4]
    assert all(stood.reason in ("run_failed", "checkpoint") for stood in found[:2]) and found[2].reason == "finished"
    assert all(row["merged"] == [[0, SAMPLES]] for row in epoch_rows(folder))
    build().load_state_dict(load_file(path))
    assert found[-1].state_file and (folder / found[-1].state_file).exists()

    alone = trainer(resume=path, epochs=4)
    assert alone.run().samples == SAMPLES


def test_each_run_of_a_chain_in_another_mode_does_every_sample_once(
    small_world: Any, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """cpu_cadence, cpu_async, cpu_sync and back, with other wires and outer optimizers: every run but the last is cut
    short in the first epoch.
    """
    samples = 4 * SAMPLES  # what three runs do before they fail is less
    path, rows, said, stood = None, [], [], []
    chain: list[tuple[str, int | None, dict[str, Any]]] = [
        ("cpu_cadence", 4, {"outer": "nesterov"}),
        ("cpu_async", 3, {"outer": "slow_momentum", "wire": "bf16"}),
        ("cpu_sync", 8, {"outer": "slow_momentum", "outer_lr": 0.5, "wire": "int8"}),
        ("cpu_cadence", None, {}),
    ]
    for mode, after, changed in chain:

        def script(after: int | None = after, changed: dict[str, Any] = changed, path: str | None = path) -> None:
            # an average must have been made, whose line this is: in cpu_async this rank does not wait for the other one
            averaged = small_world.paths / "run" / "metrics.jsonl"
            loss = Loss(after if local_cluster().rank == 0 else None, behind=averaged)
            windows = {"anchor": 2, "max_anchor": 2, "max_batch_diff": 0}  # of two batches each, whoever is quicker
            often = {"checkpoint_every": "0.001s", "epochs": 2, "data": Numbers(samples=samples)}
            trainer(loss=loss, resume=path, **often, **windows, **changed).run()

        outcome = small_world.run(script, 2, mode)
        folder = small_world.paths / "run"
        assert bool(outcome.said(HubFailed)) == (after is not None), outcome.output
        rows += list(epoch_rows(folder))
        said.append(" ".join(notice.text for notice in outcome.said(Notice)))
        path = str(folder / "checkpoint.safetensors")
        stood.append((path, found := read(Path(path))))
        assert found.mode == mode and (folder / found.outer_file).is_file() == bool(changed)
        assert after is None or (found.epoch == 0 and found.samples)
    assert [(row["epoch"], row["merged"]) for row in rows] == [(epoch, [[0, samples]]) for epoch in range(2)]
    assert "outer" not in said[0]
    assert "outer optimizer (nesterov) is another than the script's slow_momentum" in said[1]
    assert "goes on from" in said[2] and "outer" not in said[2].replace("/outer", "")
    assert "outer optimizer (slow_momentum) is gone from the script" in said[3]
    assert stood[-1][1].reason == "finished"

    path, found = stood[2]
    alone = trainer(resume=path, outer="slow_momentum", epochs=1, data=Numbers(samples=samples)).run()
    assert alone.samples == samples - found.samples
    assert "a script alone has no averages, so the momentum" in capsys.readouterr().err

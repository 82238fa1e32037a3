"""result.json: figures that users' scripts read."""

from __future__ import annotations

import msgspec

from flodl_wire import result
from flodl_wire.result import EpochResult, RankResult, RunResult

PROMISED = [
    "v",
    "run",
    "verdict",
    "degraded",
    "why",
    "mode",
    "world_size",
    "wall_s",
    "samples",
    "samples_per_s",
    "balance",
    "sync_share",
    "rounds",
    "round_ms_median",
    "ranks",
    "epochs",
]


def test_every_promised_key_is_always_there() -> None:
    run = RunResult("r", "cpu_sync", 1)
    run.ranks.append(RankResult(0, "node-a", "cpu", 10, 320, 1.0, 0.1, 320.0))
    run.epochs.append(EpochResult(0, None, 1.0, 320))
    text = msgspec.json.decode(msgspec.json.encode(run))
    assert set(PROMISED) <= set(text)
    assert set(text["ranks"][0]) >= {
        "rank",
        "host",
        "device",
        "batches",
        "samples",
        "busy_s",
        "wait_s",
        "samples_per_s",
    }
    assert set(text["epochs"][0]) >= {"epoch", "loss", "wall_s", "samples", "eval"}
    assert text["v"] == result.VERSION == 1
    assert msgspec.json.decode(msgspec.json.encode(run), type=RunResult) == run


def test_a_number_that_is_none_becomes_null_and_the_document_stays_json() -> None:
    text = msgspec.json.encode(EpochResult(0, float("nan"), 1.0, 1))
    assert msgspec.json.decode(text, type=EpochResult, strict=True).loss is None


def test_a_result_prints_as_one_line() -> None:
    run = RunResult("r", "cpu_sync", 2, epochs=[EpochResult(0, 0.5, 1.0, 320, {"accuracy": 0.97})])
    assert "\n" not in repr(run) and "0.97" in repr(run)
    assert "; 1 epoch, " in repr(run) and "; 2 ranks, " in repr(run)


def test_the_loss_of_the_evaluation_is_told_apart_from_trainings_where_both_are_printed() -> None:
    epoch = EpochResult(0, 0.5, 1.0, 320, {"loss": 0.25, "accuracy": 0.97})
    assert epoch.figures() == {"evaluated loss": 0.25, "accuracy": 0.97}
    assert "loss 0.5; evaluated loss 0.25, accuracy 0.97" in repr(RunResult("r", "cpu_sync", 2, epochs=[epoch]))
    assert b'"eval":{"loss":0.25' in msgspec.json.encode(epoch), "records keep the script's own name"
    assert EpochResult(0, 0.5, 1.0, 320).figures() == {}

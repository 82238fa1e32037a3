"""Whole runs through real processes, and the ways in which they end."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from flodl_wire.hub_messages import (
    EpochDone,
    Finished,
    HubFailed,
    Notice,
    Progress,
    RankGone,
    RankIn,
    Ready,
    RelayIn,
    Stop,
    Timeline,
    Trained,
    TrainingBegan,
)
from flodl_wire.plane_messages import TensorSpec, Terms

TERMS = Terms("cpu_cadence", 101, 8, 3, 0, True)


def test_two_ranks_train_and_leave_checkpoint_metrics_and_result(bench: Any, numpy_rank: Any) -> None:
    ranks = [numpy_rank(0, TERMS, 2.0), numpy_rank(1, TERMS, 5.0)]
    bench.start().form({"here": [0, 1]})
    futures = [bench.train("here", rank) for rank in ranks]
    finished = bench.await_word(Finished)
    assert [future.result(30).samples for future in futures] == [303, 303]
    kinds = [type(word) for word in bench.told if not isinstance(word, (Progress, Timeline))]
    begin = [Ready, RelayIn, RankIn, RankIn, TrainingBegan]
    assert kinds == [*begin, EpochDone, EpochDone, EpochDone, Trained, Finished]

    done = sorted(position for rank in ranks for position in rank.positions)
    assert done == [(epoch, position) for epoch in range(3) for position in range(101)]
    result = finished.result
    assert (result.verdict, result.samples, result.rounds >= 3) == ("done", 303, True)
    assert [sorted(epoch.eval) for epoch in result.epochs] == [["weight"]] * 3

    tensors = load_file(bench.run_dir / "checkpoint.safetensors")
    assert tensors["weight"].tobytes() == ranks[0].weight.tobytes() == ranks[1].weight.tobytes()
    assert tensors["head.weight"].tobytes() == tensors["weight"].tobytes()
    assert tensors["weight"][0, 0] > 100.0
    assert result.epochs[-1].eval == {"weight": float(ranks[0].weight[0])}

    rows = [json.loads(line) for line in (bench.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["merged"] for row in rows if row["kind"] == "epoch"] == [[[0, 101]]] * 3
    assert bench.relays["here"].wait(30) == 0
    assert bench.end() == 0
    assert not (bench.folder / "hub.sock").exists()


def test_two_hosts_make_the_numbers_of_one(bench: Any, numpy_rank: Any) -> None:
    terms = Terms("cpu_cadence", 64, 8, 1, 0, False)
    ranks = [numpy_rank(rank, terms, 2.0) for rank in range(3)]
    bench.start().form({"a": [0, 1], "b": [2]})
    futures = [bench.train(host, rank) for host, rank in zip(("a", "a", "b"), ranks, strict=True)]
    assert bench.await_word(Finished).result.samples == 64
    for future in futures:
        future.result(30)
    assert ranks[0].weight.tobytes() == ranks[1].weight.tobytes() == ranks[2].weight.tobytes()
    assert bench.end() == 0


def test_a_rank_killed_in_a_run_is_tolerated_and_its_samples_done_by_others(bench: Any, numpy_rank: Any) -> None:
    ranks = [numpy_rank(rank, TERMS, 2.0) for rank in range(3)]
    bench.start().form({"a": [0, 1], "b": [2]})

    def die(plan: Any) -> None:
        if plan.window == 2:
            raise ConnectionAbortedError

    futures = [bench.train("a", ranks[0]), bench.train("a", ranks[1]), bench.train("b", ranks[2], die)]
    with pytest.raises(ConnectionAbortedError):
        futures[2].result(30)
    bench.say(RankGone(2, False, "killed by signal 9"))
    result = bench.await_word(Finished).result
    assert (result.degraded, result.samples) == (True, 303)
    assert "killed by signal 9" in next(word.text for word in bench.told if isinstance(word, Notice))
    rows = [json.loads(line) for line in (bench.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["merged"] for row in rows if row["kind"] == "epoch"] == [[[0, 101]]] * 3


@pytest.mark.parametrize("hosts", [{"a": [0], "b": [1]}, {"a": [0, 1]}])
def test_models_that_differ_never_start(bench: Any, numpy_rank: Any, hosts: dict[str, list[int]]) -> None:
    other = [TensorSpec("weight", [3, 3], "F32", "param")]
    bench.start().form(hosts)
    futures = [
        bench.train("a", numpy_rank(0, TERMS, 2.0)),
        bench.train(list(hosts)[-1], numpy_rank(1, TERMS, 2.0, other)),
    ]
    with pytest.raises(AssertionError, match="rank 1 has param weight"):
        bench.await_word(Finished)
    failed = bench.told[-1]
    assert isinstance(failed, HubFailed)
    assert failed.code == "schema-differs"
    assert bench.end() == 1
    for future in futures:
        assert future.exception(30) is not None


def test_a_relay_killed_before_training_fails_the_run(bench: Any, numpy_rank: Any) -> None:
    bench.start().form({"a": [0], "b": [1]})
    bench.train("a", numpy_rank(0, TERMS, 2.0))
    bench.await_word(RankIn)
    os.kill(bench.relays["a"].pid, signal.SIGKILL)
    with pytest.raises(AssertionError, match="cannot begin: rank 0 on a is lost"):
        bench.await_word(Finished)


def test_a_checkpoint_that_the_disk_refuses_fails_the_run(bench: Any, numpy_rank: Any) -> None:
    bench.run_dir.rmdir()
    bench.start().form({"here": [0]})
    bench.train("here", numpy_rank(0, TERMS, 2.0))
    with pytest.raises(AssertionError, match="No such file or directory"):
        bench.await_word(Finished)
    assert bench.told[-1].code == "checkpoint-failed"
    assert any("goes on without it" in word.text for word in bench.told if isinstance(word, Notice))


def test_a_result_larger_than_a_datagram_arrives_whole(bench: Any, numpy_rank: Any) -> None:
    terms = Terms("cpu_sync", 1, 1, 1500, 0, True)
    bench.mode = "cpu_sync"
    bench.start().form({"here": [0]})
    bench.train("here", numpy_rank(0, terms, 2.0))
    assert len(bench.await_word(Finished).result.epochs) == 1500


def test_the_launchers_end_ends_the_hub(bench: Any) -> None:
    bench.start()
    bench.await_word(Ready)
    bench.pair.close()
    assert bench.hub.wait(30) == 1
    assert not (bench.folder / "hub.sock").exists()


def test_stop_before_the_end_is_answered_with_what_there_is(bench: Any) -> None:
    bench.start()
    bench.await_word(Ready)
    bench.say(Stop("interrupted"))
    with pytest.raises(AssertionError, match="interrupted"):
        bench.await_word(Finished)
    assert bench.hub.wait(30) == 1


def test_a_mode_the_hub_cannot_do_is_refused(bench: Any) -> None:
    bench.mode = "fast"
    bench.start()
    with pytest.raises(AssertionError, match="cannot coordinate mode fast"):
        bench.await_word(Ready)
    assert bench.hub.wait(30) == 1


@pytest.mark.parametrize("line", [b"", b"{}\n", b"no json\n"])
def test_a_bad_spec_is_one_sentence(bench: Any, line: bytes) -> None:
    bench.type_in(line)
    bench.hub.wait(30)
    words = bench.hub.stderr.read().decode()
    assert words.startswith("flodl-planes: cannot ")
    assert "Traceback" not in words


def test_a_pair_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from flodl_planes.main import dispatch
    from flodl_wire.faults import Refused

    with (tmp_path / "file").open("wb") as file, pytest.raises(Refused, match="cannot use --pair"):
        dispatch(["hub", "--pair", str(file.fileno())])


def test_numbers_are_those_of_the_weighted_mean(bench: Any, numpy_rank: Any) -> None:
    terms = Terms("cpu_sync", 24, 8, 1, 0, False)
    bench.mode = "cpu_sync"
    ranks = [numpy_rank(rank, terms, 2.0) for rank in range(2)]
    bench.start().form({"here": [0, 1]})
    for rank in ranks:
        bench.train("here", rank)
    bench.await_word(Finished)
    # three batches of 8: two ranks move by 8, their mean moves by 8; then rank 0 alone moves by 8
    assert np.array_equal(
        load_file(bench.run_dir / "checkpoint.safetensors")["weight"], np.full((2, 3), 116, np.float32)
    )

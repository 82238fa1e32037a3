"""A run's folder of checkpoints: what stands beside one, what is tidied away, which one a resume takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from flodl_planes.plane.layout import lay_out
from flodl_planes.records import checkpoint, resume, tensor_file
from flodl_planes.records import cursor as cursors
from flodl_planes.records.checkpoint_writer import CheckpointWriter, Job
from flodl_planes.records.cursor import Cursor
from flodl_wire import checkpoints
from flodl_wire.faults import Broken, Fault, Refused
from flodl_wire.plane_messages import TensorSpec, Terms
from flodl_wire.result import EpochResult

TENSORS = [TensorSpec("weight", [2, 3], "F32", "param", ["head.weight"]), TensorSpec("count", [], "I64", "buffer")]
LAYOUT = lay_out(TENSORS)
TERMS = Terms("cpu_cadence", 100, 10, 3, 5, False)


def average(value: float) -> Any:
    flat = np.zeros(LAYOUT.total_bytes, np.uint8)
    flat[:24].view(np.float32)[:] = value
    return flat


def cursor(run: str, rounds: int, **changed: Any) -> Cursor:
    plain: dict[str, Any] = {
        "mode": "cpu_cadence", "reason": "checkpoint", "epoch": 1, "epochs": 3, "merged": [[0, 30]], "seed": 5,
        "dataset": 100, "batch_size": 10, "world_size": 2,
    }  # fmt: skip
    return Cursor(run=run, rounds=rounds, **{**plain, **changed})


def full_disk(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def saved(runs: Path, run: str, *rounds: int, **changed: Any) -> Path:
    """A run that saved at these rounds; each average holds its round's number."""
    (runs / run).mkdir(parents=True)
    writer = CheckpointWriter(runs / run, TENSORS, LAYOUT.offsets)
    for number in rounds:
        state = memoryview(tensor_file.write_header([], {"round": str(number)}))
        writer.write(Job(cursor(run, number, **changed), average(number), state))
    return runs / run


def find(said: str, runs: Path, terms: Terms = TERMS, tensors: list[TensorSpec] = TENSORS) -> resume.Found:
    return resume.find(said, runs, "20260101-000009-own", terms, tensors)


def loaded(found: resume.Found) -> float:
    flat = np.zeros(LAYOUT.total_bytes, np.uint8)
    assert found.path
    checkpoint.load(found.path, TENSORS, LAYOUT.offsets, flat)
    return float(flat[:24].view(np.float32)[0])


def test_average_cursor_and_state_belong_together_and_older_ones_are_tidied_away(tmp_path: Path) -> None:
    folder = saved(tmp_path, "20260101-000001-aaaa", 3, 7, 9)
    found = find("latest", tmp_path)
    assert (loaded(found), found.cursor and found.cursor.rounds) == (9.0, 9)
    assert found.state == folder / "checkpoint.state-9.safetensors"
    assert checkpoint.read(found.state).metadata == {"round": "9"}
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint.previous.safetensors", "checkpoint.safetensors",
        "checkpoint.state-7.safetensors", "checkpoint.state-9.safetensors",
    ]  # fmt: skip


def test_a_save_without_a_state_of_its_own_names_the_last_one(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, TENSORS, LAYOUT.offsets)
    writer.write(Job(cursor("r", 3), average(3), memoryview(b"\x02\0\0\0\0\0\0\0{}")))
    path = writer.write(Job(cursor("r", 4), average(4)))
    stood = cursors.decode(checkpoint.read(path).metadata, "x")
    assert (stood.rounds, stood.state_file, stood.state_round) == (4, "checkpoint.state-3.safetensors", 3)
    assert (tmp_path / stood.state_file).exists()


def test_what_was_written_beside_a_checkpoint_that_found_no_room_gives_its_room_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path, "20260101-000001-aaaa", 3)
    writer = CheckpointWriter(folder, TENSORS, LAYOUT.offsets)
    state = memoryview(tensor_file.write_header([], {"round": "x"}))
    writer.write(Job(cursor(folder.name, 4), average(4), state))
    before = sorted(path.name for path in folder.iterdir())
    momentum = {"weight": np.ones(6, np.float32)}
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "link", full_disk)  # behind all other files
        with pytest.raises(Broken, match="No space left on device"):
            writer.write(Job(cursor(folder.name, 5), average(5), state, momentum))
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == [name for name in before if name != checkpoints.PREVIOUS], "and of its own nothing"
    writer.write(Job(cursor(folder.name, 6), average(6)))
    found = find("latest", tmp_path)
    assert loaded(found) == 6.0 and found.state == folder / "checkpoint.state-4.safetensors"


@pytest.mark.parametrize(
    "wrong",
    [
        {"merged": [[0, 101]]}, {"merged": [[-5, 20]]}, {"merged": [[0, 10], [5, 10]]}, {"merged": [[0, 10, 5]]},
        {"merged": [[5, -5]]}, {"merged": [[0]]}, {"skipped": [[90, 20]]}, {"epoch": -1}, {"rounds": -4},
        {"loss_samples": -1},
    ],
)  # fmt: skip
def test_a_cursor_that_cannot_be_is_a_file_of_no_use(wrong: dict[str, Any]) -> None:
    good = msgspec.structs.replace(cursor("r", 3), dataset=100, epoch=1, merged=[[20, 10], [0, 20]])
    assert cursors.decode({cursors.KEY: cursors.encode(good)}, "x") == good
    bad = cursors.encode(msgspec.structs.replace(good, **wrong))
    with pytest.raises(Broken) as caught:
        cursors.decode({cursors.KEY: bad}, "x")
    assert caught.value.code == "bad-file" and "cannot be: its numbers contradict" in caught.value.why


def test_a_cursor_of_a_newer_flodl_is_refused_and_auto_begins_anew(tmp_path: Path) -> None:
    folder = tmp_path / "20260101-000001-aaaa"
    folder.mkdir()
    newer = msgspec.structs.replace(cursor(folder.name, 3), v=2)
    CheckpointWriter(folder, TENSORS, LAYOUT.offsets).write(Job(newer, average(3)))
    with pytest.raises(Refused, match="a newer flodl wrote it"):
        find("latest", tmp_path)
    found = find("auto", tmp_path)
    assert found.path is None and "a newer flodl wrote it" in found.notes[0]


def test_the_writing_thread_says_what_became_of_it(tmp_path: Path) -> None:
    outcomes: list[Path | Fault] = []
    writer = CheckpointWriter(tmp_path, TENSORS, LAYOUT.offsets, outcomes.append)
    assert writer.wait() and not writer.busy
    whole = cursor("r", 3, history=[EpochResult(0, 1.0, 1.0, 100)])
    writer.submit(Job(whole, average(3)))
    assert writer.wait()
    assert outcomes == [tmp_path / "checkpoint.safetensors"]
    assert checkpoint.read(tmp_path / "checkpoint.safetensors").metadata["samples"] == "130"
    (tmp_path / ".checkpoint.safetensors.part").mkdir()
    writer.submit(Job(cursor("r", 4), average(4)))
    assert writer.wait()
    writer.submit(Job(cursor("r", 5), average(5), outer={"a": np.zeros(2, np.complex64)}))  # none that we know
    assert writer.wait()
    assert [fault.code for fault in outcomes[1:] if isinstance(fault, Fault)] == ["checkpoint-failed"] * 2


def test_the_outer_optimizer_comes_back_as_it_was(tmp_path: Path) -> None:
    arrays = {"a.b": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.array([0.5])}
    writer = CheckpointWriter(tmp_path, TENSORS, LAYOUT.offsets)
    writer.write(Job(cursor("r", 3), average(3), outer=arrays))
    back = checkpoint.read_outer(tmp_path / "checkpoint.outer-3.safetensors")
    assert {name: array.tolist() for name, array in back.items()} == {n: a.tolist() for n, a in arrays.items()}


def test_a_file_that_comes_in_pieces_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "none": np.zeros((0, 2), np.float32)}
    folder = saved(tmp_path, "20260101-000001-aaaa", 3)
    CheckpointWriter(folder, TENSORS, LAYOUT.offsets).write(Job(cursor(folder.name, 4), average(4), outer=arrays))
    whole = os.preadv  # Linux gives 2 GB at a time; here it is 7 bytes
    monkeypatch.setattr(os, "preadv", lambda file, rooms, at: whole(file, [rooms[0][:7]], at))
    flat = np.zeros(LAYOUT.total_bytes, np.uint8)
    checkpoint.load(folder / "checkpoint.safetensors", TENSORS, LAYOUT.offsets, flat)
    assert flat.tolist() == average(4).tolist()
    back = checkpoint.read_outer(folder / "checkpoint.outer-4.safetensors")
    assert {name: array.tolist() for name, array in back.items()} == {n: a.tolist() for n, a in arrays.items()}


def test_a_file_that_shrinks_while_it_is_read_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, "20260101-000001-aaaa", 3) / "checkpoint.safetensors"
    flat = np.zeros(LAYOUT.total_bytes, np.uint8)
    with pytest.raises(Broken, match="it has weight") as caught:
        checkpoint.load(path, TENSORS[1:], LAYOUT.offsets[1:], flat)
    assert caught.value.code == "wrong-model"
    ends = iter([0])
    monkeypatch.setattr(os, "preadv", lambda file, rooms, at: next(ends))
    with pytest.raises(Broken, match="it is cut short"):
        checkpoint.load(path, TENSORS, LAYOUT.offsets, flat)


def test_an_outer_optimizer_of_another_dtype_is_no_use(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.outer-3.safetensors"
    path.write_bytes(tensor_file.write_header([("a", "F16", [2])], {}) + bytes(4))
    with pytest.raises(Broken, match="its a is of dtype F16"):
        checkpoint.read_outer(path)


def with_momentum(runs: Path, kind: str) -> None:
    """A run that saved with that outer optimizer."""
    folder = runs / "20260101-000001-aaaa"
    folder.mkdir(parents=True)
    terms = {"outer": {"kind": kind, "lr": 0.7, "momentum": 0.9}} if kind else {}
    momentum = {"weight": np.ones(6, np.float32)} if kind else {}
    CheckpointWriter(folder, TENSORS, LAYOUT.offsets).write(
        Job(cursor(folder.name, 3, terms=terms), average(3), outer=momentum)
    )


@pytest.mark.parametrize(
    ("was", "now", "read", "said"),
    [
        ("nesterov", "nesterov", True, []),
        ("nesterov", "slow_momentum", False, ["the checkpoint's outer optimizer (nesterov) is another than"]),
        ("slow_momentum", "", False, ["the checkpoint's outer optimizer (slow_momentum) is gone from the script"]),
        ("", "nesterov", False, []),
        ("", "", False, []),
    ],
)
def test_a_momentum_is_read_by_the_kind_that_gathered_it(
    tmp_path: Path, was: str, now: str, read: bool, said: list[str]
) -> None:
    with_momentum(tmp_path, was)
    other = {"kind": now, "lr": 0.1, "momentum": 0.5} if now else {}
    for named in ("auto", "latest", "20260101-000001-aaaa"):
        found = find(named, tmp_path, msgspec.structs.replace(TERMS, outer=other))
        assert (found.outer is not None) == read and loaded(found) == 3.0
        assert [note[: len(start)] for note, start in zip(found.notes, said, strict=True)] == said


def test_a_checkpoint_that_says_no_kind_keeps_its_momentum_to_itself(tmp_path: Path) -> None:
    folder = tmp_path / "20260101-000001-aaaa"
    folder.mkdir()
    stood = cursor(folder.name, 3, terms={"outer": "?"})
    CheckpointWriter(folder, TENSORS, LAYOUT.offsets).write(
        Job(stood, average(3), outer={"weight": np.ones(6, np.float32)})
    )
    outer = {"kind": "nesterov", "lr": 0.7, "momentum": 0.9}
    found = find("latest", tmp_path, msgspec.structs.replace(TERMS, outer=outer))
    assert found.outer is None and "begins with nothing" in found.notes[0]


@pytest.mark.parametrize(("mode", "wire"), [("cpu_sync", "float32"), ("cpu_async", "bf16"), ("nccl_cadence", "int8")])
def test_another_mode_and_another_wire_are_no_reason_to_begin_anew(tmp_path: Path, mode: str, wire: str) -> None:
    saved(tmp_path, "20260101-000001-aaaa", 3, terms={"wire": "float32"})
    found = find("latest", tmp_path, msgspec.structs.replace(TERMS, mode=mode, wire=wire))
    assert loaded(found) == 3.0 and not found.notes


def test_the_newest_run_is_the_latest_and_a_name_or_a_path_means_what_it_says(tmp_path: Path) -> None:
    older = saved(tmp_path, "20260101-000001-ffff", 3)
    saved(tmp_path, "20260101-000002-aaaa", 5)
    (tmp_path / "20260101-000003-bbbb").mkdir()  # saved nothing
    assert loaded(find("latest", tmp_path)) == 5.0
    for said in (older.name, str(older), str(older / "checkpoint.safetensors")):
        assert loaded(find(said, tmp_path)) == 3.0


@pytest.mark.parametrize("cut", [5, 40, -1])
def test_a_file_cut_short_anywhere_gives_way_to_the_one_before(tmp_path: Path, cut: int) -> None:
    folder = saved(tmp_path, "20260101-000001-aaaa", 3, 5)
    file = folder / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:cut])
    found = find("latest", tmp_path)
    assert loaded(found) == 3.0
    assert len(found.notes) == 1 and "cut short" in found.notes[0] and found.notes[0].endswith("before it is used")


@pytest.mark.parametrize("junk", [b"", b"\xff" * 8 + b"{}", b"\x02\0\0\0\0\0\0\0[]", b"x" * 100])
def test_junk_costs_a_sentence_and_no_memory(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "checkpoint.safetensors").write_bytes(junk)
    with pytest.raises(Broken, match="cannot use"):
        find("r", tmp_path / "runs")


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("lastest", "did you mean latest?"),
        ("20260101-000001-aaax", "did you mean 20260101-000001-aaaa?"),
        ("digits", "the last runs that left a checkpoint are 20260101-000002-bbbb, 20260101-000001-aaaa"),
        ("20260101-000003-cccc", "the last runs that left a checkpoint are 20260101-000002-bbbb, 20260101-000001-aaaa"),
    ],
)
def test_whoever_names_what_is_not_there_or_of_no_use_is_told_what_is(tmp_path: Path, said: str, fix: str) -> None:
    """The third run was killed before its first checkpoint."""
    saved(tmp_path, "20260101-000001-aaaa", 3)
    saved(tmp_path, "20260101-000002-bbbb", 5)
    (tmp_path / "20260101-000003-cccc").mkdir()
    with pytest.raises(Refused) as refused:
        find(said, tmp_path)
    assert refused.value.fix == fix
    path = tmp_path / "20260101-000002-bbbb" / "checkpoint.safetensors"
    path.write_bytes(b"")
    for meant in ("latest", path.parent.name, str(path.parent), str(path)):
        with pytest.raises(Broken, match="it is cut short") as broken:
            find(meant, tmp_path)
        assert broken.value.fix == "the last runs that left a checkpoint are 20260101-000001-aaaa"


@pytest.mark.parametrize("said", ["latest", "20260101-000001-aaaa", "20260101-000001-aaax", "other", "auto", "."])
@pytest.mark.parametrize("cut", [None, 0, 5, 40, -1])
def test_the_window_is_told_the_same_ahead_of_the_run(tmp_path: Path, said: str, cut: int | None) -> None:
    """What the files alone tell is refused there in the words that would come here, and nothing else is."""
    folder = saved(tmp_path, "20260101-000001-aaaa", 3)
    (tmp_path / "other").mkdir()
    if cut is not None:
        file = folder / "checkpoint.safetensors"
        file.write_bytes(file.read_bytes()[:cut])
    told: list[str] = []
    for ask in (lambda: checkpoints.check(said, tmp_path), lambda: find(said, tmp_path)):
        try:
            ask()
            told.append("")
        except Fault as fault:
            told.append(fault.render())
    assert told[0] == told[1]
    assert bool(told[0]) == (said in ("20260101-000001-aaax", "other", ".") or (cut is not None and said != "auto"))


def test_auto_takes_the_last_run_that_fits_and_says_what_it_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, "20260101-000001-aaaa", 3)
    saved(tmp_path, "20260101-000002-aaaa", 5, dataset=70)
    found = find("auto", tmp_path)
    assert loaded(found) == 3.0
    assert "trained on 70 samples, the script's data has 100" in found.notes[0]
    with pytest.raises(Refused, match="trained on 70 samples"):
        find("latest", tmp_path)


@pytest.mark.parametrize(
    ("others", "said"),
    [(0, []), (1, ["an older run does not fit either"]), (30, ["30 older runs do not fit either"])],
)
def test_many_runs_that_do_not_fit_cost_auto_two_lines(tmp_path: Path, others: int, said: list[str]) -> None:
    for number in range(others + 1):
        saved(tmp_path, f"20260101-{number:06}-aaaa", 3, dataset=99)
    found = find("auto", tmp_path)
    assert found.path is None and f"-{others:06}-" in found.notes[0]
    assert found.notes[1:] == [*said, "there is nothing to resume: a new run begins"]


def test_auto_begins_anew_behind_a_run_that_is_complete(tmp_path: Path) -> None:
    saved(tmp_path, "20260101-000001-aaaa", 3)
    saved(tmp_path, "20260101-000002-aaaa", 5, epoch=3, merged=[])
    found = find("auto", tmp_path)
    assert found.path is None and "is complete" in found.notes[0]
    with pytest.raises(Refused, match="its 3 epochs are done"):
        find("latest", tmp_path)
    assert find("auto", tmp_path / "nowhere") == resume.Found()


def test_a_run_that_owes_its_last_evaluation_is_not_complete(tmp_path: Path) -> None:
    history = [EpochResult(epoch, 1.0, 1.0, 100, None if epoch == 2 else {"accuracy": 0.5}) for epoch in range(3)]
    saved(tmp_path, "20260101-000001-aaaa", 5, epoch=3, merged=[], history=history)
    evaluates = msgspec.structs.replace(TERMS, evaluates=True)
    for said in ("auto", "latest", "20260101-000001-aaaa"):
        assert find(said, tmp_path, evaluates).path is not None
    assert find("auto", tmp_path).path is None, "a script that evaluates nothing has nothing left to do"
    assert find("auto", tmp_path, msgspec.structs.replace(evaluates, epochs=2)).path is None


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ([TensorSpec("weight", [3, 3], "F32", "param", ["head.weight"]), TENSORS[1]], "its weight is F32 2×3"),
        ([TensorSpec("weight", [2, 3], "F64", "param", ["head.weight"]), TENSORS[1]], "model has weight (F64 2×3)"),
        ([TENSORS[0]], "it has count (I64 scalar), which the script's model lacks"),
        ([*TENSORS, TensorSpec("bias", [2], "F32", "param")], "it has no bias (F32 2)"),
    ],
)
def test_another_model_is_refused_by_the_first_tensor_that_differs(
    tmp_path: Path, tensors: list[TensorSpec], why: str
) -> None:
    saved(tmp_path, "20260101-000001-aaaa", 3)
    with pytest.raises(Fault) as caught:
        find("latest", tmp_path, tensors=tensors)
    assert caught.value.code == "wrong-model" and why in caught.value.why and caught.value.fix


def test_another_seed_is_refused_where_an_epoch_was_interrupted(tmp_path: Path) -> None:
    other = Terms("cpu_cadence", 100, 10, 3, 6, False)
    saved(tmp_path, "20260101-000001-aaaa", 3)
    with pytest.raises(Refused, match="order came from seed 5"):
        find("latest", tmp_path, other)
    saved(tmp_path, "20260101-000002-aaaa", 3, merged=[])
    assert find("latest", tmp_path, other).path


def test_a_model_that_flodl_did_not_save_is_not_gone_on_from(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, TENSORS, LAYOUT.offsets, average(1), {"format": "pt"})
    with pytest.raises(Broken, match="not where training stood"):
        find(str(tmp_path), tmp_path)


def test_what_is_left_of_an_epoch_and_what_was_done_first() -> None:
    assert cursors.remaining(100, []) == [[0, 100]]
    assert cursors.remaining(100, [[60, 40], [10, 20]]) == [[0, 10], [30, 30]]
    assert cursors.first([[0, 10], [30, 30]], 15) == [[0, 10], [30, 5]]


def test_another_model_is_refused_though_the_checkpoint_before_it_would_fit(tmp_path: Path) -> None:
    folder = saved(tmp_path, "20260101-000001-aaaa", 3)
    other = [TensorSpec("weight", [4], "F32", "param")]
    layout = lay_out(other)
    flat = np.zeros(layout.total_bytes, np.uint8)
    CheckpointWriter(folder, other, layout.offsets).write(Job(cursor(folder.name, 4), flat))
    with pytest.raises(Broken) as caught:
        find("latest", tmp_path)
    assert caught.value.code == "wrong-model"


def test_latest_where_nothing_was_saved_is_refused(tmp_path: Path) -> None:
    (tmp_path / "20260101-000001-aaaa").mkdir()
    for runs in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(Refused, match="cannot resume"):
            find("latest", runs)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "sub/state", ""])
def test_what_stands_beside_a_checkpoint_is_looked_for_nowhere_else(tmp_path: Path, name: str) -> None:
    (tmp_path / "run" / "sub").mkdir(parents=True)
    for path in ("secret", "run/state", "run/sub/state"):
        (tmp_path / path).write_bytes(b"x")
    stood = resume.Found(tmp_path / "run" / "checkpoint.safetensors", cursor("r", 3, state_file=name, outer_file=name))
    assert stood.state is None and stood.outer is None
    near = cursor("r", 3, state_file="state", outer_file="gone")
    beside = resume.Found(tmp_path / "run" / "checkpoint.safetensors", near)
    assert beside.state == tmp_path / "run" / "state" and beside.outer is None
    assert resume.Found(None, near).state is None and resume.Found(tmp_path, None).outer is None


def test_spans_are_done_one_after_the_other() -> None:
    spans = [[0, 10], [20, 10]]
    done = {samples: cursors.first(spans, samples) for samples in (0, 4, 10, 15, 20)}
    assert done == {0: [], 4: [[0, 4]], 10: [[0, 10]], 15: [[0, 10], [20, 5]], 20: spans}
    assert cursors.remaining(40, [[20, 10], [0, 10]]) == [[10, 10], [30, 10]]
    assert cursors.remaining(10, [[0, 10]]) == []

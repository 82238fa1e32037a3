"""The judge of `make chaos` sees what it is there to see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.chaos import judge

SAMPLES, EPOCHS = 10, 2


def run(folder: Path, epochs: list[Any], cursor: dict[str, Any] | None = None) -> Path:
    """What a run has left: `epochs`, the spans of each that it merged; `cursor`, of its last checkpoint."""
    folder.mkdir()
    rows = [{"kind": "epoch", "epoch": epoch, "merged": merged} for epoch, merged in epochs]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if cursor is not None:
        header = json.dumps({"__metadata__": {"flodl": json.dumps({"dataset": SAMPLES, **cursor})}}).encode()
        (folder / "checkpoint.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return folder


def record(folder: Path, *handed_in: Any) -> Path:
    folder.mkdir()
    (folder / "17.jsonl").write_text("".join(json.dumps(each) + "\n" for each in handed_in))
    return folder


WHOLE = [[0, SAMPLES]]
HALF = {"epoch": 1, "merged": [[0, 4]], "history": [{"eval": {"off": 1.0}}]}


def test_a_run_in_which_everything_was_handed_in_and_merged_is_right(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", [(0, WHOLE), (1, WHOLE)])
    done = record(tmp_path / "record", [0, [[0, 6]]], [0, [[6, 4]]], [1, WHOLE])
    assert judge.merged([folder], [done], None, EPOCHS, SAMPLES) == []


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        pytest.param([[0, 7]], [[4, 6]], [], id="what was lost with the first is done again"),
        pytest.param([[0, 7]], [[5, 5]], ["1 samples of epoch 1 were delivered by nobody"], id="it is not"),
        pytest.param([[0, 3]], [[4, 6]], ["1 samples of epoch 1 were delivered by nobody"], id="saved, and never done"),
    ],
)
def test_two_runs_share_an_epoch_where_the_checkpoint_says(
    tmp_path: Path, first: list[list[int]], second: list[list[int]], wrong: list[str]
) -> None:
    folders = [run(tmp_path / "one", [(0, WHOLE)], HALF), run(tmp_path / "two", [(1, WHOLE)])]
    records = [record(tmp_path / "by-one", [0, WHOLE], [1, first]), record(tmp_path / "by-two", [1, second])]
    assert judge.merged(folders, records, None, EPOCHS, SAMPLES) == wrong


def test_a_run_behind_one_that_left_nothing_does_everything(tmp_path: Path) -> None:
    folders = [run(tmp_path / "one", []), run(tmp_path / "two", [(0, WHOLE), (1, WHOLE)])]
    records = [record(tmp_path / "by-one", [0, WHOLE]), record(tmp_path / "by-two", [1, WHOLE])]
    assert judge.merged(folders, records, None, EPOCHS, SAMPLES) == ["10 samples of epoch 0 were delivered by nobody"]


def test_an_epoch_that_lacks_samples_or_comes_twice_is_told(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", [(0, [[0, 4], [5, 5]]), (1, WHOLE), (1, WHOLE)])
    done = record(tmp_path / "record", [0, WHOLE], [1, WHOLE])
    wrong = judge.merged([folder], [done], None, EPOCHS, SAMPLES)
    assert wrong == ["epoch 1 was done 2 times", "epoch 0 merged [[0, 4], [5, 5]]"]

"""Walk-ins with a real Trainer: model and data are compared at the door, with the arguments that the run states."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from integration.conftest import Make
from integration.project import BIN, Project
from integration.running import Running
from integration.until import until
from integration.walk_in import walk_in_here


def walk_in(made: Project, folder: Path, host: str) -> Running:
    return walk_in_here(made, host, f"127.0.0.1:{made.port}", "--bin", "train.py", folder=folder)


def project_in(folder: Path, **changes: str) -> Path:
    """What `fdl init` writes, with words of train.py replaced."""
    subprocess.run([BIN / "fdl", "init", folder], check=True, capture_output=True)
    script = folder / "train.py"
    text = script.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    script.write_text(text)
    return folder


@pytest.mark.timeout(300)  # torch is loaded six times
def test_another_model_is_refused_at_the_door_by_the_tensor_that_differs_and_equal_ones_train(
    project: Make, tmp_path: Path
) -> None:
    made = project(folder="controller", train={"run": "python train.py --epochs 2"})
    window = {"discovery": True, "min_rank_start": 2, "target_ranks": 2}
    controller = {"host": "127.0.0.1", "port": made.port, "path": str(made.folder), "join": window}
    made.write("fdl.farm.yml", {"cluster": {"controller": controller}})
    run = made.start("@farm", "train")
    until(lambda: run.state(), 30, lambda: run.text)

    first = walk_in(made, project_in(tmp_path / "first"), "first")
    until(lambda: (now := run.state()) and now.joined_ranks == 1, 60, lambda: run.text + first.text)
    wider = walk_in(made, project_in(tmp_path / "wider", **{"nn.Linear(2, 64)": "nn.Linear(2, 65)"}), "wider")
    assert wider.wait() == 1
    assert "0.weight" in wider.text and "fix: " in wider.text, wider.text
    other = project_in(tmp_path / "other", **{"generator=dice)\n    radius": "generator=dice) // 2\n    radius"})
    stranger = walk_in(made, other, "other-data")
    assert stranger.wait() == 1 and "data" in stranger.text, stranger.text

    second = walk_in(made, project_in(tmp_path / "second"), "second")
    state = run.done(within=120)
    assert [refused["host"] for refused in state.refused] == ["wider", "other-data"]
    assert [first.wait(), second.wait()] == [0, 0]
    assert {rank["host"] for rank in run.result()["ranks"]} == {"first", "second"}
    assert len(run.result()["epochs"]) == 2, json.dumps(run.result())
    run.nothing_left(10)

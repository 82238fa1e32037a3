"""A script that is asked what it would train says so and does not train."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from flodl_planes import Trainer
from flodl_planes.rank.schema import signature, slots_of
from flodl_wire import environ


def asked(capsys: pytest.CaptureFixture[str], **more: Any) -> dict[str, Any]:
    data = [(torch.full((3,), float(index)), index % 2) for index in range(40)]
    arguments: dict[str, Any] = {
        "model": lambda: nn.Linear(3, 2),
        "optimizer": lambda parameters: pytest.fail("no optimizer is needed"),
        "data": data,
        **more,
    }
    with pytest.raises(SystemExit) as left:
        Trainer(**arguments)
    assert left.value.code == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("flodl-model-sig: ")]
    found: dict[str, Any] = json.loads(line.partition(" ")[2])
    return found


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environ.MODEL_SIG_PROBE, "1")


def test_it_says_what_the_model_is_made_of_and_what_the_data_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys)
    assert found["model_sig"] == signature([slot.spec for slot in slots_of(nn.Linear(3, 2))])
    assert [tensor[0] for tensor in found["tensors"]] == ["weight", "bias"]
    assert len(found["dataset_sig"]) == 64 and found == asked(capsys)


def test_another_model_or_other_data_sign_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    first = asked(capsys)
    wider = asked(capsys, model=lambda: nn.Linear(4, 2))
    assert wider["model_sig"] != first["model_sig"] and wider["dataset_sig"] == first["dataset_sig"]
    shifted = asked(capsys, data=[(torch.full((3,), index + 0.5), index % 2) for index in range(40)])
    assert shifted["model_sig"] == first["model_sig"] and shifted["dataset_sig"] != first["dataset_sig"]
    assert asked(capsys, data_signature="")["dataset_sig"] == ""

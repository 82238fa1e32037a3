"""What a rank on a GPU does differently. Skipped by name without one; `python -m tools.gpu` runs it where there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed import TCPStore

from flodl_planes.plane.layout import lay_out
from flodl_planes.rank import collective
from flodl_planes.rank.collective import Collective
from flodl_planes.rank.correction import Corrected
from flodl_planes.rank.schema import Adopted, slots_of
from flodl_wire.plane_messages import Round

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda:0")


def model(device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).to(device)
    made.register_parameter("brain", nn.Parameter(torch.randn(5, device=device).bfloat16()))
    return made


def test_a_model_goes_out_to_the_live_buffer_and_comes_back(device: torch.device) -> None:
    ours = model(device)
    slots = slots_of(ours)
    layout = lay_out([slot.spec for slot in slots])
    live = np.zeros(layout.total_bytes, np.uint8)
    adopted = Adopted(slots, layout.offsets, memoryview(live), device)
    adopted.settle()
    live.view(np.float32)[0] += 1.0
    before = ours[0].weight.flatten()[0].item()
    adopted.refresh()
    assert ours[0].weight.flatten()[0].item() == pytest.approx(before + 1.0)


def test_what_was_learned_while_the_average_was_made_is_kept(device: torch.device) -> None:
    ours = model(device)
    slots = slots_of(ours)
    layout = lay_out([slot.spec for slot in slots])
    live = np.zeros(layout.total_bytes, np.uint8)
    state = Corrected(slots, layout, live, device)
    state.settle()
    average = live.copy()
    average.view(np.float32)[0] += 1.0
    before = ours[0].weight.clone()
    with torch.no_grad():
        ours[0].weight.add_(0.5)
    state.correct(average, measure=True)
    expected = before + 0.5
    expected[0, 0] += 1.0
    torch.testing.assert_close(ours[0].weight, expected)


def test_a_world_of_one_averages_over_nccl(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = TCPStore("127.0.0.1", server.port, is_master=False)
    monkeypatch.setattr(collective, "connect", lambda: client)
    ours = model(device)
    slots = slots_of(ours)
    layout = lay_out([slot.spec for slot in slots])
    flat = torch.empty(layout.total_bytes, dtype=torch.uint8, device=device)
    adopted = Adopted(slots, layout.offsets, flat, device)
    adopted.settle()
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    joined = Collective(layout, flat, 0, "here")
    for number, weights in ((1, {"0": 1.0}), (2, {"0": 0.5, "7": 0.5})):
        opened = Round(number, weights, 0, True, direct=True, hands=[0])
        assert joined.join(opened, lambda: False) and joined.average(opened, lambda: False)
    joined.apply()
    adopted.refresh()
    joined.close()
    torch.testing.assert_close(ours[0].weight, before["0.weight"] / 2)


def test_the_trainer_trains_on_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    from flodl_planes import Trainer

    monkeypatch.chdir(tmp_path)
    data: Any = [(torch.randn(8), torch.randn(4)) for _ in range(16)]
    t = Trainer(
        model=lambda: nn.Linear(8, 4),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        loss=lambda net, batch: (net(batch[0]) - batch[1]).square().mean(),
        data=data,
        batch_size=4,
    )
    assert t.run().samples == 16 and t.device == device

"""What a rank says of its card, by what torch says of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from flodl_planes.rank.gpu import gpu_of
from flodl_wire.plane_messages import Gpu

CARD = torch.device("cuda:1")


@pytest.mark.parametrize(("hip", "vendor"), [(None, "cuda"), ("6.2", "rocm")])
def test_a_card_is_its_vendor_its_generation_and_its_memory(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, vendor: str
) -> None:
    card = SimpleNamespace(major=9, minor=0, total_memory=(139 << 30) + 5)
    monkeypatch.setattr(torch.cuda, "get_device_properties", {CARD: card}.__getitem__)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert gpu_of(CARD) == Gpu(vendor, 9, 139)


def test_a_processor_and_a_card_that_does_not_answer_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: torch.device) -> None:
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr(torch.cuda, "get_device_properties", broken)
    assert gpu_of(torch.device("cpu")) is None and gpu_of(CARD) is None

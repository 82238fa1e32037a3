"""How long ranks wait for one another where nothing can tell them of a death: while a gloo group forms."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from flodl_planes.plane.layout import lay_out
from flodl_planes.rank import collective
from flodl_planes.rank.collective import Collective
from flodl_wire.plane_messages import Round, TensorSpec

HALVES = {"0": 0.5, "1": 0.5}


class Meets:
    """In place of the meeting: everybody is here."""

    def __init__(self, *words: Any) -> None:
        pass

    def hold(self, host: str) -> None:
        pass


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[Collective]:
    """Two, of one float each: 1 and 2."""
    store = dist.HashStore()
    monkeypatch.setattr(collective, "Meeting", Meets)
    monkeypatch.setattr(collective, "connect", lambda: store)
    layout = lay_out([TensorSpec("w", [1], "F32", "param")])
    flats = [torch.zeros(layout.total_bytes, dtype=torch.uint8) for _ in range(2)]
    for rank, flat in enumerate(flats):
        flat[:4].view(torch.float32)[0] = rank + 1.0
    return [Collective(layout, flat, rank, "here") for rank, flat in enumerate(flats)]


def round_of(number: int) -> Round:
    return Round(number, HALVES, 0, alone=False, hands=[0, 1], direct=True)


def test_a_group_that_one_of_its_ranks_does_not_live_to_see_is_given_up_soon(
    ranks: list[Collective], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective, "FORM_S", 0.2)
    began = time.monotonic()
    with pytest.raises(RuntimeError):
        ranks[0].join(round_of(0), lambda: False)
    assert time.monotonic() - began < 30, "and not after the minutes that an average may take"


def test_an_average_may_take_longer_than_its_groups_forming(
    ranks: list[Collective], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective, "FORM_S", 1.5)
    seen: list[float] = []

    def take_part(rank: int) -> None:
        assert ranks[rank].join(round_of(0), lambda: False)
        if rank == 1:
            time.sleep(2.0)  # plays a slow network
        assert ranks[rank].average(round_of(0), lambda: False)
        ranks[rank].apply()
        seen.append(ranks[rank]._flat[:4].view(torch.float32).item())
        ranks[rank].close()

    threads = [threading.Thread(target=take_part, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [1.5, 1.5]

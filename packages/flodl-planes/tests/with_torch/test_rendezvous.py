"""Ranks that drive torch.distributed themselves meet at the run's store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import TCPStore

import flodl_planes
from flodl_wire import blob, environ
from flodl_wire.devices import CpuDevices
from flodl_wire.faults import Refused
from flodl_wire.specs import Envelope, EnvelopeController, EnvelopeWorker

SIG = "ab" * 32


def enter(monkeypatch: pytest.MonkeyPatch, rank: int, port: int, mode: str = "nccl_cadence") -> None:
    """This process is `rank` of two, each on a host of its own, whose agent listens at `port`."""
    worker = EnvelopeWorker(f"node-{'ab'[rank]}", [rank], CpuDevices(1), index=rank)
    envelope = Envelope(EnvelopeController("127.0.0.1", 1), 2, 2, worker, mode, "r", store_port=port)
    monkeypatch.setenv(environ.CLUSTER_JSON, blob.encode(envelope))
    monkeypatch.setenv(environ.LOCAL_RANK, "0")


Together = Callable[[list[Callable[[], None]]], None]


def test_two_ranks_meet_and_talk_over_a_group_of_their_own(together: Together, monkeypatch: pytest.MonkeyPatch) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def script(mine: int) -> None:
        enter(monkeypatch, mine, server.port)
        rank, world_size, store = flodl_planes.rendezvous(SIG)
        assert (rank, world_size) == (mine, 2)
        dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
        numbers = torch.tensor([float(rank + 1)])
        dist.all_reduce(numbers)
        assert numbers.item() == 3.0
        dist.destroy_process_group()

    together([lambda: script(0), lambda: script(1)])


def test_a_rank_with_other_data_is_refused_by_host_and_the_first_is_not(
    together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def first() -> None:
        enter(monkeypatch, 0, server.port)
        assert flodl_planes.rendezvous(bytes.fromhex(SIG)).rank == 0

    def other() -> None:
        enter(monkeypatch, 1, server.port)
        with pytest.raises(Refused) as refused:
            flodl_planes.rendezvous("cd" * 32)
        assert refused.value.what == "cannot train with rank 1 on node-b"
        assert refused.value.why == "its data are not those of node-a (cdcdcdcd against abababab)"

    together([first, other])


@pytest.mark.parametrize("unnamed", [None, bytes(32)])
def test_data_without_a_name_are_compared_with_nobodys(
    together: Together, monkeypatch: pytest.MonkeyPatch, unnamed: Any
) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def script(mine: int, sig: Any) -> None:
        enter(monkeypatch, mine, server.port)
        assert flodl_planes.rendezvous(sig).world_size == 2

    together([lambda: script(0, unnamed), lambda: script(1, SIG)])


def test_there_is_nobody_to_meet_alone_or_where_no_store_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="runs alone"):
        flodl_planes.rendezvous()
    enter(monkeypatch, 0, 0, "cpu_cadence")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(Refused, match="in mode cpu_cadence"):
        flodl_planes.rendezvous()


@pytest.mark.parametrize("sig", ["", "xy" * 32, b"short"])
def test_a_signature_is_32_bytes(sig: Any) -> None:
    with pytest.raises(Refused, match="as a signature"):
        flodl_planes.rendezvous(sig)

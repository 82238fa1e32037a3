from __future__ import annotations

from typing import Any

import pytest

from flodl_window import settings
from flodl_window.fanout_child import spec_of
from flodl_wire.config import parse_cluster
from flodl_wire.faults import Refused
from flodl_wire.specs import LaunchConfig


def cluster(*hosts: dict[str, Any], **join: Any) -> dict[str, Any]:
    workers = [{"local_devices": "cpu:2", "path": "/p", "nccl_socket_ifname": "eth0", **host} for host in hosts]
    controller: dict[str, Any] = {"host": "10.0.0.1", "path": "/p"}
    return {"controller": {**controller, "join": join} if join else controller, "workers": workers}


def settle(data: dict[str, Any], mode: str = "cpu_sync", *, fanout: bool = True) -> settings.Settings:
    return settings.settle(LaunchConfig(parse_cluster(data)), mode, ["x"], fanout=fanout)


FAR = {"host": "far", "tunnel": True}
TOKEN = "a" * 32


def test_the_port_is_bound_to_loopback_when_everybody_afar_comes_through_a_tunnel() -> None:
    assert settle(cluster(FAR)).loopback_only
    assert settle(cluster(FAR, {"host": "localhost"})).loopback_only
    assert not settle(cluster(FAR, {"host": "near"})).loopback_only
    assert not settle(cluster(FAR, discovery=True, token=TOKEN, min_rank_start=2)).loopback_only
    assert settle(cluster(FAR, discovery=True, token=TOKEN, min_rank_start=2, tunnel_only=True)).loopback_only
    assert not settle(cluster(FAR, target_ranks=3, token=TOKEN)).loopback_only, "a walk-in is waited for"


def test_its_agent_dials_itself_and_the_fan_out_is_told_where_the_tunnel_leads() -> None:
    charter = settings.charter(settle(cluster(FAR, {"host": "near"})), "run", 1400, False)
    far, near = spec_of(charter).hosts
    assert (far.agent.controller_host, far.tunnel, near.agent.controller_host, near.tunnel) == (
        "127.0.0.1",
        1400,
        "10.0.0.1",
        None,
    )
    assert far.agent.salt_hex


@pytest.mark.parametrize(
    ("data", "mode", "words"),
    [
        (cluster({"host": "localhost", "tunnel": True}), "cpu_sync", "very box"),
        (cluster({**FAR, "local_devices": [0, 1]}), "torch", "past any tunnel"),
        (cluster(FAR, open_admission=True), "cpu_sync", "open_admission"),
        (cluster(FAR, start="manual"), "cpu_sync", "controller.join.start"),
        (cluster(FAR, discovery=True, min_rank_start=2), "cpu_sync", "controller.join.discovery"),
        (
            cluster(FAR, {"host": "near"}, discovery=True, min_rank_start=2, token=TOKEN, tunnel_only=True),
            "cpu_sync",
            "tunnel_only",
        ),
    ],
)
def test_a_tunnel_that_cannot_be_is_refused_by_its_keys(data: dict[str, Any], mode: str, words: str) -> None:
    with pytest.raises(Refused) as caught:
        settle(data, mode)
    assert "cluster.workers[" in caught.value.what and words in caught.value.why and caught.value.fix


def test_nccl_goes_past_any_tunnel() -> None:
    with pytest.raises(Refused) as caught:
        settle(cluster({**FAR, "local_devices": [0, 1]}), "nccl_cadence")
    assert "mode nccl_cadence moves tensors from rank to rank" in caught.value.why


def test_a_tunnel_needs_the_session_that_starts_the_agent() -> None:
    with pytest.raises(Refused) as caught:
        settle(cluster(FAR), fanout=False)
    assert "dial in by themselves" in caught.value.why and "--ssh" in caught.value.fix

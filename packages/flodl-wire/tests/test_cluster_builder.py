"""The cluster from Python is the cluster from the file, byte for byte, and is refused in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_wire import blob, environ
from flodl_wire.cluster_builder import ClusterBuilder
from flodl_wire.config import Cluster, parse_cluster
from flodl_wire.faults import Refused

BLOCK: dict[str, Any] = {  # every key, as a file would hold it
    "controller": {
        "host": "192.168.1.10",
        "port": 4000,
        "path": "/home/me/digits",
        "docker": "dev",
        "arch": "precompiled/cpu",
        "data_path": "/data",
        "join": {"min_rank_start": 2, "target_ranks": 4, "start": "manual", "discovery": True, "token": "ab" * 16},
    },
    "workers": [
        {"host": "desk", "local_devices": "cpu:2", "path": "/home/me/digits", "nccl_socket_ifname": "eth0"},
        {
            "host": "tower",
            "local_devices": [0, 1],
            "path": "/srv/digits",
            "nccl_socket_ifname": "enp1s0",
            "arch": "precompiled/cu128",
            "docker": "cuda",
            "data_path": "/flodl/data",
            "gpu_ram_share": 0.5,
            "env": {"A": "x y", "B": ""},
            "ssh": {"target": "t", "port": 2222, "user": "u", "identity_file": "/k", "options": ["ProxyJump=b"]},
            "tunnel": True,
        },
    ],
    "env": {"NCCL_DEBUG": "INFO"},
    "gpu_ram_share": 0.25,
}


def the_same() -> ClusterBuilder:
    controller, (desk, tower) = BLOCK["controller"], BLOCK["workers"]
    keys = {key: value for key, value in tower.items() if key not in ("host", "local_devices", "path")}
    plain = {key: value for key, value in controller.items() if key not in ("host", "path", "join")}
    return (
        ClusterBuilder(controller["host"], controller["path"], **plain)
        .env(BLOCK["env"])
        .gpu_ram_share(0.25)
        .worker("desk", "cpu:2", nccl_socket_ifname=desk["nccl_socket_ifname"])
        .worker("tower", (0, 1), "/srv/digits", **keys)
        .window(min_rank_start=2, target_ranks=4, start="manual")
        .window(discovery=True, token="ab" * 16)
    )


def test_the_envelope_is_the_one_of_the_file_byte_for_byte_and_reads_back() -> None:
    made = the_same()
    assert made.build() == parse_cluster(BLOCK)
    assert made.envelope() == blob.encode(parse_cluster(BLOCK))
    assert blob.decode(made.envelope(), Cluster, "x") == parse_cluster(BLOCK)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"prot": 1}, "cluster.controller.prot"),
        ({"port": "1337"}, "cluster.controller.port"),
        ({"join": {"strat": "auto"}}, "cluster.controller.join.strat"),
    ],
)
def test_what_a_file_would_be_refused_for_is_refused_with_the_same_path(change: dict[str, Any], path: str) -> None:
    builder = ClusterBuilder("c", "/p", **change).worker("a", "cpu:2")
    with pytest.raises(Refused) as caught:
        builder.build()
    assert path in caught.value.what
    with pytest.raises(Refused) as from_file:
        controller = {"host": "c", "path": "/p", **change}
        parse_cluster({"controller": controller, "workers": [{"host": "a", "local_devices": "cpu:2", "path": "/p"}]})
    assert str(caught.value) == str(from_file.value)


def test_it_is_exported_by_a_script_run_by_hand_and_left_alone_by_its_ranks() -> None:
    builder = ClusterBuilder("c", "/p").worker("a", "cpu:2")
    environment: dict[str, str] = {}
    assert builder.export(environment)
    assert blob.decode(environment[environ.FULL_CLUSTER_JSON], Cluster, "x") == builder.build()
    for name in (*environ.ROLE_VARIABLES, environ.MODEL_SIG_PROBE):
        rank = {name: "00"}
        assert not builder.export(rank)
        assert rank == {name: "00"}

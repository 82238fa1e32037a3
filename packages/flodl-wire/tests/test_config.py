"""The cluster block: what passes, and each refusal by its exact text."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import blob, config
from flodl_wire.config import Cluster
from flodl_wire.faults import Refused

ONE = {
    "controller": {"host": "10.0.0.1", "path": "/opt/flodl"},
    "workers": [{"host": "node-a", "local_devices": [0], "path": "/opt/flodl"}],
}


def whole() -> dict[str, Any]:
    """Every key there is."""
    return {
        "controller": {
            "host": "192.168.122.1",
            "port": 1338,
            "path": "/opt/flodl",
            "docker": "cuda",
            "arch": "precompiled/cu128",
            "data_path": "/flodl/data",
            "join": {
                "min_rank_start": 2,
                "join_timeout": 300,
                "target_ranks": 4,
                "max_join_timeout": 600,
                "open_admission": False,
                "discovery": True,
                "token": "0123456789abcdef0123456789abcdef",
                "tunnel_only": False,
                "start": "hybrid",
            },
        },
        "workers": [
            {
                "host": "node-a",
                "local_devices": [0],
                "nccl_socket_ifname": "virbr0",
                "path": "/opt/flodl",
                "arch": "precompiled/cu128",
                "docker": "cuda",
            },
            {
                "host": "node-b",
                "ssh": {
                    "target": "node-b",
                    "port": 2222,
                    "user": "ubuntu",
                    "identity_file": "/home/me/.ssh/cluster_key",
                    "options": ["ProxyJump=bastion", "StrictHostKeyChecking=no"],
                },
                "tunnel": True,
                "local_devices": "all",
                "nccl_socket_ifname": "enp1s0",
                "path": "/srv/flodl",
                "data_path": "/flodl/data",
                "gpu_ram_share": 1.5,
                "env": {"NCCL_SOCKET_NTHREADS": "2", "EMPTY": "", "ODD": "a 'b' \"c\" $d\nü"},
            },
        ],
        "env": {"NCCL_DEBUG": "INFO", "LD_LIBRARY_PATH": "/x", "FLODL_VERBOSITY": "2"},
        "gpu_ram_share": 0.5,
    }


def test_every_key_is_taken_and_travels_unchanged() -> None:
    cluster = config.parse_cluster(whole())
    assert blob.decode(blob.encode(cluster), Cluster, "x") == cluster
    given_keys = msgspec.to_builtins(cluster)
    assert given_keys["workers"][1] == {**given_keys["workers"][1], **whole()["workers"][1]}
    assert given_keys["controller"] == whole()["controller"]


def test_a_short_block_gets_the_defaults() -> None:
    cluster = config.parse_cluster(ONE)
    assert cluster.controller.port == 1337
    assert cluster.controller.join is None
    join = config.JoinWindow()
    assert (join.join_timeout, join.start, join.open_admission, join.discovery) == (300, "auto", False, False)
    assert (join.min_rank_start, join.target_ranks, join.max_join_timeout, join.token) == (None, None, None, None)


def test_no_workers_is_fine_when_they_walk_in() -> None:
    block = {"controller": {"host": "h", "path": "/x", "join": {"discovery": True}}}
    assert config.parse_cluster(block).workers == []


Change = Callable[[dict[str, Any]], object]


def at(*path: str | int, value: Any) -> Change:
    """Set the key at `path` to `value`."""

    def change(block: dict[str, Any]) -> None:
        place: Any = block
        for step in path[:-1]:
            if isinstance(step, str) and step not in place:
                place[step] = {}
            place = place[step]
        place[path[-1]] = value

    return change


def without(*path: str | int) -> Change:
    def change(block: dict[str, Any]) -> None:
        place: Any = block
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return change


SECOND = {"host": "node-b", "local_devices": "all", "path": "/x", "nccl_socket_ifname": "eth0"}
WORKER_KEYS = (
    "the keys here are arch, data_path, docker, env, gpu_ram_share, host, local_devices, nccl_socket_ifname, path, "
    "ssh, tunnel"
)
JOIN_KEYS = (
    "the keys here are discovery, join_timeout, max_join_timeout, min_rank_start, open_admission, start, target_ranks, "
    "token, tunnel_only"
)
HOST_FIX = "write the host's name or address"

REFUSALS: list[tuple[Change, str, str]] = [
    # unknown keys
    (
        at("controller", "prot", value=1),
        "cannot use cluster.controller.prot: there is no such key",
        "did you mean port? the keys here are arch, data_path, docker, host, join, path, port",
    ),
    (at("controller", "join", "x", value=1), "cannot use cluster.controller.join.x: there is no such key", JOIN_KEYS),
    (
        at("workers", 0, "device", value=1),
        "cannot use cluster.workers[0].device: there is no such key",
        "did you mean local_devices? " + WORKER_KEYS,
    ),
    (
        at("boxes", value=[]),
        "cannot use cluster.boxes: there is no such key",
        "the keys here are controller, env, gpu_ram_share, workers",
    ),
    (
        at("workers", 0, "ssh", "key", value="x"),
        "cannot use cluster.workers[0].ssh.key: there is no such key",
        "the keys here are identity_file, options, port, target, user",
    ),
    (
        at("controller", "master_addr", value="x"),
        "cannot use cluster.controller.master_addr: it is the key of an older format",
        "write it as controller.host",
    ),
    (
        at("nodes", value=[]),
        "cannot use cluster.nodes: it is the key of an older format",
        "write it as workers",
    ),
    (
        at("workers", 0, "ssh_port", value=22),
        "cannot use cluster.workers[0].ssh_port: it is the key of an older format",
        "write it as ssh.port",
    ),
    (
        at("workers", 0, "ranks", value=[0]),
        "cannot use cluster.workers[0].ranks: ranks follow from the order of the workers and their devices",
        "delete the key; local_devices says how many ranks a host gives",
    ),
    # missing keys
    (
        without("controller"),
        "cannot use cluster: it lacks the key controller",
        "add controller: the box you type on: controller: {host: <address the workers dial>, path: <project folder>}",
    ),
    (
        without("controller", "host"),
        "cannot use cluster.controller: it lacks the key host",
        "add host: the address the workers dial",
    ),
    (
        without("workers", 0, "local_devices"),
        "cannot use cluster.workers[0]: it lacks the key local_devices",
        "add local_devices: all, a list such as [0, 1], or cpu:2",
    ),
    # wrong types
    (
        at("controller", "port", value="1337"),
        "cannot use cluster.controller.port: it must be a whole number, and it is '1337'",
        "write a whole number, without quotes",
    ),
    (
        at("controller", value=[]),
        "cannot use cluster.controller: it must be a block of keys, and it is a list",
        "write its keys below it, indented, as name: value",
    ),
    (
        at("workers", value=5),
        "cannot use cluster.workers: it must be a list, and it is 5",
        "write a list: [a, b], or one item a line after a dash",
    ),
    (
        at("workers", value=None),
        "cannot use cluster.workers: it must be a list, and it is empty",
        "write a list: [a, b], or one item a line after a dash",
    ),
    (
        at("workers", 0, value="node-a"),
        "cannot use cluster.workers[0]: it must be a block of keys, and it is 'node-a'",
        "write its keys below it, indented, as name: value",
    ),
    (
        at("workers", 0, "local_devices", value={}),
        "cannot use cluster.workers[0].local_devices: it must be a whole number or text or a list, and it is a "
        "block of keys",
        "write all, a list such as [0, 1], or cpu:2",
    ),
    (
        at("workers", 0, "local_devices", value=[0, "x"]),
        "cannot use cluster.workers[0].local_devices[1]: it must be a whole number, and it is 'x'",
        "write a whole number, without quotes",
    ),
    (
        at("workers", 0, "tunnel", value="yes please"),
        "cannot use cluster.workers[0].tunnel: it must be true or false, and it is 'yes please'",
        "write true or false, without quotes",
    ),
    (
        at("workers", 0, "ssh", value={"options": [1]}),
        "cannot use cluster.workers[0].ssh.options[0]: it must be text, and it is 1",
        'put it in quotes: "1"',
    ),
    (
        at("workers", 0, "env", value={"A": "fine", "NCCL_SOCKET_NTHREADS": 2}),
        "cannot use cluster.workers[0].env.NCCL_SOCKET_NTHREADS: it must be text, and it is 2",
        'put it in quotes: "2"',
    ),
    (
        at("env", value={"A": True}),
        "cannot use cluster.env.A: it must be text, and it is true",
        'put it in quotes: "true"',
    ),
    (
        at("env", value={"A": None}),
        "cannot use cluster.env.A: it must be text, and it is empty",
        'write "" for an empty value, or delete the key',
    ),
    (
        at("gpu_ram_share", value="half"),
        "cannot use cluster.gpu_ram_share: it must be a number, and it is 'half'",
        "write a number, without quotes",
    ),
    (
        at("controller", "join", "start", value="later"),
        "cannot use cluster.controller.join.start: it is 'later'",
        "use auto, manual or hybrid",
    ),
    (
        at("controller", "join", "token", value=int("1" * 32)),
        "cannot use cluster.controller.join.token: it must be text",  # never with its value
        "put it in quotes",
    ),
    # rules of one key
    (at("controller", "host", value=" "), "cannot use cluster.controller.host: it is blank", HOST_FIX),
    (
        at("controller", "path", value=""),
        "cannot use cluster.controller.path: it is blank",
        "name the folder of the project on the controller",
    ),
    (
        at("controller", "port", value=65536),
        "cannot use cluster.controller.port: 65536 is no TCP port",
        "use 1 to 65535; the default is 1337",
    ),
    (
        at("workers", value=[]),
        "cannot use cluster.workers: it is empty",
        "list the hosts, or set controller.join.discovery: true so that workers walk in",
    ),
    (
        at("workers", 0, "host", value="-oProxyCommand=x"),
        "cannot use cluster.workers[0].host: '-oProxyCommand=x' starts with '-', which ssh would read as an option",
        HOST_FIX,
    ),
    (
        at("workers", 0, "ssh", value={"target": "-x"}),
        "cannot use cluster.workers[0].ssh.target: '-x' starts with '-', which ssh would read as an option",
        HOST_FIX,
    ),
    (
        at("workers", 0, "ssh", value={"user": "a b"}),
        "cannot use cluster.workers[0].ssh.user: 'a b' holds a space or an unprintable character",
        HOST_FIX,
    ),
    (
        at("workers", 0, "ssh", value={"port": 0}),
        "cannot use cluster.workers[0].ssh.port: 0 is no TCP port",
        "use 1 to 65535",
    ),
    (
        at("workers", 0, "ssh", value={"options": [" "]}),
        "cannot use cluster.workers[0].ssh.options: an option is blank",
        "write options as ssh's -o takes them: Key=value",
    ),
    (
        at("workers", 0, "path", value="  "),
        "cannot use cluster.workers[0].path: it is blank",
        "name the folder of the project on that host",
    ),
    (
        at("workers", 0, "local_devices", value="gpu"),
        "cannot read cluster.workers[0].local_devices: 'gpu': an index must be a whole number, 0 or more",
        "write all, a list such as 0,1, or cpu:2 for two CPU ranks",
    ),
    (
        at("workers", 0, "gpu_ram_share", value=-0.1),
        "cannot use cluster.workers[0].gpu_ram_share: -0.1 is no share of memory",
        "use a finite number, 0 or more, e.g. 0.5",
    ),
    (
        at("gpu_ram_share", value=float("nan")),
        "cannot use cluster.gpu_ram_share: nan is no share of memory",
        "use a finite number, 0 or more, e.g. 0.5",
    ),
    (
        at("env", value={"A-B": ""}),
        "cannot use cluster.env.A-B: it is no name of an environment variable",
        "letters, digits and _ only, no digit first",
    ),
    (
        at("env", value={"A": "\0"}),
        "cannot use cluster.env.A: its value holds a NUL byte, which no environment can carry",
        "take it out",
    ),
    (
        at("env", value={"CUDA_VISIBLE_DEVICES": "0"}),
        "cannot use cluster.env.CUDA_VISIBLE_DEVICES: flodl sets it for each rank itself",
        "delete the key; local_devices chooses devices",
    ),
    (
        at("workers", 0, "env", value={"FDL_ENV": "x"}),
        "cannot use cluster.workers[0].env.FDL_ENV: flodl sets it for each rank itself",
        "delete the key; local_devices chooses devices",
    ),
    (
        at("env", value={"A": "\udcff"}),
        "cannot use cluster: it holds text that is no Unicode (surrogates not allowed)",
        "write the file as UTF-8",
    ),
    # rules between workers
    (
        at("workers", value=[SECOND, {**SECOND}]),
        "cannot use cluster.workers[1].host: 'node-b' is workers[0] already",
        "one entry per host; its devices go in local_devices",
    ),
    (
        at("workers", value=[SECOND, {**SECOND, "host": "c", "nccl_socket_ifname": " "}]),
        "cannot use cluster.workers[1].nccl_socket_ifname: it is missing, and the cluster spans several hosts",
        "name the interface that reaches the others; `ip -br addr` on that host lists them",
    ),
]


@pytest.mark.parametrize(("change", "sentence", "fix"), REFUSALS, ids=[sentence for _, sentence, _ in REFUSALS])
def test_each_mistake_is_refused_with_its_path(change: Change, sentence: str, fix: str) -> None:
    block = copy.deepcopy(ONE)
    change(block)
    with pytest.raises(Refused) as caught:
        config.parse_cluster(block)
    assert (str(caught.value), caught.value.fix) == (sentence, fix)
    assert fix, "every refusal says how to mend it"


def test_a_block_that_is_none_at_all_is_refused() -> None:
    with pytest.raises(Refused, match="cannot use cluster: it must be a block of keys, and it is empty"):
        config.parse_cluster(None)


def test_the_path_starts_with_the_name_of_the_source() -> None:
    with pytest.raises(Refused, match=r"cannot use fdl\.yml: cluster\.workers: it is empty"):
        config.parse_cluster({**ONE, "workers": []}, "fdl.yml: cluster")


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@given(st.sampled_from(places(whole())[1:]), NESTED)
def test_nonsense_anywhere_is_taken_or_refused_and_never_a_traceback(path: tuple[str | int, ...], value: Any) -> None:
    block = whole()
    at(*path, value=value)(block)
    try:
        cluster = config.parse_cluster(block)
    except Refused as refused:
        assert str(refused).startswith(("cannot use cluster", "cannot read cluster"))
    else:
        assert blob.decode(blob.encode(cluster), Cluster, "x") == cluster

"""The documents one process hands to the next."""

from __future__ import annotations

import msgspec

from flodl_wire import blob
from flodl_wire.config import parse_cluster
from flodl_wire.devices import CpuDevices
from flodl_wire.specs import (
    AgentSpec,
    Command,
    Envelope,
    EnvelopeController,
    EnvelopeWorker,
    FanoutHost,
    FanoutSpec,
    LaunchConfig,
    RelaySpec,
)


def test_an_envelope_says_what_its_readers_look_for() -> None:
    """The keys are a contract: scripts in other languages read them."""
    envelope = Envelope(
        EnvelopeController("10.0.0.1", 1337),
        3,
        2,
        EnvelopeWorker("node-a", [0, 1], CpuDevices(2), path="/opt/flodl"),
        "cpu_cadence",
        "20260301-101500-3f2a",
        salt="00" * 16,
        relay_socket="/tmp/x/relay",
    )
    text = msgspec.to_builtins(envelope)
    assert text["controller"] == {"host": "10.0.0.1", "port": 1337}
    assert (text["world_size"], text["num_workers"], text["salt"]) == (3, 2, "00" * 16)
    assert text["worker"]["ranks"] == [0, 1]
    assert text["worker"]["local_devices"] == {"type": "cpu", "count": 2}
    assert blob.decode(blob.encode(envelope), Envelope, "x") == envelope


def test_a_spec_from_a_newer_sender_is_read_without_what_is_new() -> None:
    text = b'{"host":"a","controller_host":"c","controller_port":1,"shoe_size":44}'.hex()
    assert blob.decode(text, AgentSpec, "x") == AgentSpec("a", "c", 1)


def test_a_fan_out_spec_is_one_line_whatever_is_in_it() -> None:
    spec = FanoutSpec([FanoutHost(AgentSpec("a\nb", "c", 1), local=True, env={"A": "x\ny\u2028"})], host_user="me")
    line = msgspec.json.encode(spec)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=FanoutSpec) == spec


def test_a_launch_config_carries_the_cluster_whole() -> None:
    cluster = parse_cluster(
        {
            "controller": {"host": "h", "path": "/x", "join": {"start": "manual"}},
            "workers": [{"host": "a", "local_devices": "cpu:2", "path": "/x"}],
        }
    )
    config = LaunchConfig(cluster, "cpu_sync", "/x/fdl.yml")
    assert blob.decode(blob.encode(config), LaunchConfig, "x") == config
    assert blob.decode(b"{}".hex(), LaunchConfig, "x") == LaunchConfig()


def test_defaults_of_one_document_are_never_shared_with_the_next() -> None:
    one, two = Command(["x"]), Command(["x"])
    one.env["A"] = "1"
    assert two.env == {}


def test_a_relay_spec_reads_back() -> None:
    spec = RelaySpec("a", "c", 1337, [0, 1], 2, "00" * 16, "run", relay_socket="/tmp/r")
    assert blob.decode(blob.encode(spec), RelaySpec, "x") == spec

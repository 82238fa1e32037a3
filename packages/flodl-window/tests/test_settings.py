from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from window_worlds import cluster

from flodl_window import cli_launch, settings
from flodl_window.fanout_child import spec_of
from flodl_wire import blob, environ
from flodl_wire.faults import Broken, Refused
from flodl_wire.specs import LaunchConfig, Site

CLUSTER: dict[str, Any] = {
    "controller": {"host": "10.0.0.1", "path": "/p"},
    "workers": [{"host": "box", "local_devices": "cpu:2", "path": "/p"}],
}


def write(tmp_path: Path, data: object) -> str:
    path = tmp_path / "c.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_a_file_wins_over_the_environment_and_fdl_over_a_bare_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environ.FULL_CLUSTER_JSON, blob.encode(cluster("cpu:2")))
    assert settings.read_config(None).mode is None
    monkeypatch.setenv(environ.CONFIG_JSON, blob.encode(LaunchConfig(cluster("cpu:2"), "cpu_sync")))
    assert settings.read_config(None).mode == "cpu_sync"
    named = settings.read_config(write(tmp_path, {"cluster": CLUSTER, "mode": "torch", "commands": {}}))
    assert named.mode == "torch" and named.cluster is not None


def test_where_this_box_publishes_to_is_known_from_its_publish_block(tmp_path: Path) -> None:
    for publish, served in (({"to": "out"}, tmp_path / "out"), ({}, Path.home() / ".flodl/run"), ([], None)):
        document = {"cluster": CLUSTER, "manifest": str(tmp_path / "fdl.yml"), "publish": publish}
        settled = settings.settle(settings.read_config(write(tmp_path, document)), "cpu_sync", ["x"], fanout=False)
        assert settled.served == (served or Path.home() / ".flodl/run")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "no JSON"),
        ([], "no cluster block"),
        ({"cluster": {**CLUSTER, "wrokers": []}}, "wrokers"),
        ({"cluster": CLUSTER, "mode": 3}, "mode"),
        ({"cluster": CLUSTER, "env": {"CUDA_VISIBLE_DEVICES": "0"}}, "CUDA_VISIBLE_DEVICES"),
        ({"cluster": {**CLUSTER, "workers": [{**CLUSTER["workers"][0], "env": {"FDL_ENV": "x"}}]}}, "FDL_ENV"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_path(tmp_path: Path, data: object, words: str) -> None:
    with pytest.raises(Refused) as caught:
        settings.read_config(write(tmp_path, data))
    assert words in str(caught.value)


def test_nothing_to_go_by_and_garbage_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused):
        settings.read_config(None)
    with pytest.raises(Refused):
        settings.read_config(str(tmp_path / "missing.json"))
    monkeypatch.setenv(environ.CONFIG_JSON, "not hex")
    with pytest.raises(Broken):
        settings.read_config(None)


def settle(data: dict[str, Any], **how: Any) -> settings.Settings:
    from flodl_wire.config import parse_cluster

    config = LaunchConfig(parse_cluster(data), how.pop("config_mode", None), how.pop("manifest", None))
    return settings.settle(config, how.pop("mode", None), ["x"], fanout=how.pop("fanout", True))


def test_the_mode_on_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settle(CLUSTER, config_mode="cpu_sync").mode == "cpu_sync"
    monkeypatch.setenv(environ.MODE, "torch")
    assert settle(CLUSTER, config_mode="cpu_sync").mode == "torch"
    assert settle(CLUSTER, mode="cpu-cadence").mode == "cpu_cadence"


def test_a_host_in_a_container_is_this_box_and_yet_reaches_us_only_over_the_net() -> None:
    worker = {**CLUSTER["workers"][0], "host": "localhost", "docker": "cuda"}
    data = {**CLUSTER, "workers": [worker]}
    settled = settle(data)
    assert (settled.roster[0].local, settled.roster[0].inside, settled.loopback_only) == (True, False, False)
    settled = settle({**data, "controller": {**CLUSTER["controller"], "host": "127.0.0.1"}})
    assert "network_mode: host" in " ".join(settled.notes)


def test_what_a_host_needs_to_know_of_its_container_and_its_build_travels_with_its_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(environ.CLUSTER_EXTRA_HOSTS, "tower:10.0.0.2 attic:10.0.0.3")
    workers = [
        {**CLUSTER["workers"][0], "host": "localhost", "docker": "cuda", "nccl_socket_ifname": "e"},
        {**CLUSTER["workers"][0], "host": "tower", "nccl_socket_ifname": "e"},
    ]
    settled = settle({**CLUSTER, "workers": workers})
    settled.sites = {"tower": Site("target/cluster/tower/any/site", "3.11")}
    here, tower = spec_of(settings.charter(settled, "run", 1400, False)).hosts
    assert (here.docker, here.extra_hosts, here.local) == ("cuda", ["tower:10.0.0.2", "attic:10.0.0.3"], True)
    assert here.agent.controller_host == settled.cluster.controller.host, "loopback would be the container's own"
    assert (tower.docker, tower.extra_hosts) == ("", [])
    assert tower.agent.site == settled.sites["tower"]
    assert here.agent.site is None


@pytest.mark.parametrize("every", ["0.0.0.0", "::"])
def test_every_address_is_none_that_a_worker_could_be_told_to_dial(every: str) -> None:
    data = {**CLUSTER, "controller": {**CLUSTER["controller"], "host": every}}
    with pytest.raises(Refused) as caught:
        settle(data)
    assert "cluster.controller.host" in caught.value.what and "box will be told" in caught.value.why
    assert settle(data, fanout=False).cluster.controller.host == every, "who walks in knows where to dial"


def test_a_bad_time_out_scale_is_refused_before_any_host_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, "fast")
    with pytest.raises(Refused):
        settle(CLUSTER)


def test_this_box_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not settle(CLUSTER).loopback_only
    monkeypatch.setenv(environ.HOST_NAME, "box")
    assert settle(CLUSTER).loopback_only
    monkeypatch.delenv(environ.HOST_NAME)
    assert settle({**CLUSTER, "workers": [{**CLUSTER["workers"][0], "host": "localhost"}]}).loopback_only


def test_agents_are_told_all_they_need_and_local_ones_dial_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environ.HOST_NAME, "box")
    monkeypatch.setenv(environ.HOST_USER, "me")
    manifest = tmp_path / "fdl.yml"
    manifest.write_text("x: 1\n")
    worker = {**CLUSTER["workers"][0], "nccl_socket_ifname": "eth0"}
    far = {**worker, "host": "far", "ssh": {"port": 2222}, "data_path": "/d"}
    settled = settle({**CLUSTER, "workers": [worker, far]}, manifest=str(manifest))
    spec = spec_of(settings.charter(settled, "run", 1400, False))
    here, there = spec.hosts
    assert spec.host_user == "me"
    assert (here.local, here.agent.controller_host, here.agent.controller_port) == (True, "127.0.0.1", 1400)
    assert (there.local, there.agent.controller_host, there.ssh and there.ssh.port) == (False, "10.0.0.1", 2222)
    assert there.agent.manifest_hash == hashlib.sha256(b"x: 1\n").hexdigest() and there.agent.data_path == "/d"
    assert there.agent.salt_hex and len(there.agent.salt_hex) == 32 and there.env[environ.HOST_NAME] == "far"
    assert there.env[environ.NET_TIMEOUT_SCALE] == "0.1"


def test_the_commands_own_environment_lies_between_the_clusters_and_the_hosts(tmp_path: Path) -> None:
    data = {"cluster": {**CLUSTER, "env": {"A": "cluster", "B": "cluster"}}, "env": {"B": "command"}, "cwd": "sub"}
    config = settings.read_config(write(tmp_path, data))
    made = settings.charter(settings.settle(config, None, ["x"], fanout=True), "run", 1400, False)
    assert (made.env, made.cwd) == ({"A": "cluster", "B": "command"}, "sub")


def test_everything_behind_the_dashes_is_the_commands() -> None:
    assert cli_launch.split(["--mode", "torch", "--", "python", "x.py", "--mode", "--", "-v"]) == (
        ["--mode", "torch"],
        ["python", "x.py", "--mode", "--", "-v"],
    )


@pytest.mark.parametrize("words", [[], ["--"], ["--port", "0", "--", "x"]])
def test_a_launch_without_sense_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(Refused) as caught:
        cli_launch.main(words)
    assert caught.value.exit_code == 2

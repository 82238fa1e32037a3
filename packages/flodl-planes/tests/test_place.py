"""local_cluster(): where a process stands, in each role."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flodl_planes.role.place import local_cluster
from flodl_wire import blob, environ
from flodl_wire.devices import CpuDevices, Devices, GpuDevices
from flodl_wire.faults import Broken
from flodl_wire.specs import Envelope, EnvelopeController, EnvelopeWorker


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def be_rank(
    monkeypatch: pytest.MonkeyPatch, local_rank: str, devices: Devices, mode: str = "cpu_sync", **worker: Any
) -> None:
    envelope = Envelope(
        EnvelopeController("10.0.0.1", 1337), 5, 2, EnvelopeWorker("node-b", [3, 4], devices, **worker), mode, "run-1"
    )
    monkeypatch.setenv(environ.CLUSTER_JSON, blob.encode(envelope))
    monkeypatch.setenv(environ.LOCAL_RANK, local_rank)


def test_alone_it_is_a_world_of_one_on_this_host(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv(environ.HOST_NAME, "my-box")
    place = local_cluster()
    assert (place.host, place.rank, place.local_rank, place.world_size, place.alone) == ("my-box", 0, 0, 1, True)
    assert place.data_path is None and place.gpu_ram_share is None
    assert place.cache_path == str(home / ".flodl" / "data") and Path(place.cache_path).is_dir()


def test_alone_the_data_root_is_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environ.DATA_PATH, "/data")
    assert local_cluster().data_path == "/data"


def test_a_rank_reads_its_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    be_rank(monkeypatch, "1", CpuDevices(2), data_path="/mnt/set", gpu_ram_share=0.5)
    place = local_cluster()
    assert (place.host, place.rank, place.local_rank, place.world_size, place.device) == ("node-b", 4, 1, 5, "cpu")
    assert (place.data_path, place.gpu_ram_share, place.mode, place.run) == ("/mnt/set", 0.5, "cpu_sync", "run-1")
    assert not place.alone


@pytest.mark.parametrize(("mode", "device"), [("cpu_cadence", "cuda:0"), ("torch", "cuda:1")])
def test_a_rank_is_masked_to_one_gpu_but_in_mode_torch_sees_all(
    monkeypatch: pytest.MonkeyPatch, mode: str, device: str
) -> None:
    be_rank(monkeypatch, "1", GpuDevices([2, 3]), mode)
    assert local_cluster().device == device


@pytest.mark.parametrize("local_rank", ["2", "-1", "", "one", "²"])
def test_a_local_rank_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch, local_rank: str) -> None:
    be_rank(monkeypatch, local_rank, CpuDevices(2))
    with pytest.raises(Broken, match="node-b has the ranks"):
        local_cluster()


def test_an_envelope_that_cannot_be_read_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environ.CLUSTER_JSON, "no hex")
    with pytest.raises(Broken, match=environ.CLUSTER_JSON):
        local_cluster()


BROKEN = {environ.CLUSTER_JSON: "{", environ.LOCAL_RANK: "0"}


@pytest.mark.parametrize(
    ("call", "environment", "said"),
    [
        ("rendezvous('short')", {}, "flodl: cannot use 'short' as a signature: it has 32 bytes, or 64 hex digits"),
        ("rendezvous()", BROKEN, f"flodl: cannot read {environ.CLUSTER_JSON}: "),
        ("local_cluster()", BROKEN, f"flodl: cannot read {environ.CLUSTER_JSON}: "),
        ("dispatch()", BROKEN, f"flodl: cannot read {environ.CLUSTER_JSON}: "),
    ],
)
def test_what_a_script_asks_in_vain_is_told_without_a_traceback(
    call: str, environment: dict[str, str], said: str
) -> None:
    """In a program of its own, as users write them."""
    program = f"import flodl_planes; flodl_planes.{call}"
    ended = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1 and ended.stderr.startswith(said) and "Traceback" not in ended.stderr

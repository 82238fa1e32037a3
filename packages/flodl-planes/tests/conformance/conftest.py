"""Worlds of real processes, forked from this one; see README.md."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flodl_wire import environ

sys.path.insert(0, str(Path(__file__).parent))
pytest.importorskip("torch")
from tools.forked_world import ForkedWorld, warm_up  # behind the line that skips where torch is missing

MODES = ("cpu_sync", "cpu_cadence", "cpu_async", "nccl_sync", "nccl_cadence")


@pytest.fixture(scope="session")
def warm() -> None:
    """What torch loads at a first step, once for all ranks (2 s each else); and not where these tests don't run."""
    warm_up()


@pytest.fixture
def make_world(warm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ForkedWorld]:
    """``make_world(mode, {"here": [0, 1], "there": [2]})``; the first host is the hub's own box."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, "1")  # a busy box starts a process slower than a tenth of a deadline

    def make(mode: str, hosts: dict[str, list[int]]) -> ForkedWorld:
        folder = tmp_path / f"w{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return ForkedWorld(folder, mode, hosts)

    return make


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)

"""Fixtures that any suite may use. Imports the standard library, pytest and flodl_wire only."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flodl_wire import environ

HAS_TORCH = importlib.util.find_spec("torch") is not None

# Every deadline of the project shrinks tenfold, in this process and in what it starts; and what a developer's shell
# sets for a run of theirs must not reach a test.
for name in [name for name in os.environ if name.startswith(("FLODL_", "FDL_"))]:
    if name not in (environ.NET_TIMEOUT_SCALE, environ.VERBOSITY):
        del os.environ[name]
os.environ.setdefault(environ.NET_TIMEOUT_SCALE, "0.1")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Folders named with_torch hold the tests that need torch; without it they are left out, and the header says so."""
    return True if collection_path.name == "with_torch" and not HAS_TORCH else None


def pytest_report_header(config: pytest.Config) -> str:
    return "torch: here" if HAS_TORCH else "torch: not installed, tests in with_torch folders are left out"


@pytest.fixture
def free_port() -> Iterator[int]:
    """A TCP port of the loopback address that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    yield port

"""Fixtures of the agent's suite."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the fakes are a module beside the tests

from agent_fakes import Box, FakeWindow
from agent_sshd import Sshd


@pytest.fixture
def window() -> Iterator[FakeWindow]:
    made = FakeWindow()
    yield made
    made.close()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path / "box")
    yield made
    made.close()


@pytest.fixture
def sshd(tmp_path: Path, free_port: int) -> Iterator[Sshd]:
    if not shutil.which("sshd") or os.getuid() != 0:
        pytest.skip("needs openssh-server, and root to start it (apt install openssh-server)")
    made = Sshd(tmp_path / "sshd", free_port)
    made.ready()
    yield made
    made.close()

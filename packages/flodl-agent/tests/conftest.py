"""Fixtures of the agent's suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the fakes are a module beside the tests

from agent_fakes import Box, FakeWindow


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

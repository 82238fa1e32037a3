"""Fixtures of the package's tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the world is a module beside the tests

from publish_worlds import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.source.mkdir()
    return made

"""The box that tests build on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the box is a module beside the tests

from ncclbuild_box import Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)

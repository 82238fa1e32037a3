"""The suite's kit stands beside the tests: window_worlds.py, window_fleet.py, window_hub.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

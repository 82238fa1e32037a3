"""The suite's kit stands beside the tests: window_worlds.py, window_transcript.py, window_house.py and the fakes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""The suite's kit stands beside the tests: window_worlds.py (machines), window_fleet.py (agents and a hub that speak
the wire).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

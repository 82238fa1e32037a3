"""How the ranks of a run average. A file of its own because `fdl` checks a word against it without msgspec."""

from __future__ import annotations

MODES = ("cpu_sync", "cpu_cadence", "cpu_async", "nccl_sync", "nccl_cadence", "torch")

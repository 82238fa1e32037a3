"""Random streams of a rank, and its share of an integrated GPU's memory: what is set up before a model is built."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def plant(seed: int) -> None:
    """Seed torch (every device), numpy's and Python's own streams: datasets draw their augmentation from any of
    them."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def of_rank(seed: int, rank: int) -> int:
    """The seed of a rank's streams once its model is built: dropout must differ between ranks; rank 0 is what a run
    alone has."""
    return (seed + 1_000_003 * (rank + 1)) % 2**63


def limit_memory(device: torch.device, share: float) -> None:
    """On an integrated GPU, whose memory is the host's, take at most `share` of it; a card with memory of its own is
    left alone."""
    if device.type == "cuda" and torch.cuda.get_device_properties(device).is_integrated:
        torch.cuda.set_per_process_memory_fraction(max(0.0, min(1.0, share)), device)


def streams(device: torch.device) -> dict[str, Any]:
    """Where every stream stands, as a tree (state_tree.py)."""
    kind, keys, at, has_gauss, gauss = np.random.get_state()
    version, numbers, spare = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "numpy": [kind, np.asarray(keys, np.int64), at, has_gauss, gauss],
        "python": [version, np.asarray(numbers, np.int64), spare],
    }


def restore(saved: dict[str, Any], device: torch.device) -> None:
    """Go on where `streams` saw them."""
    torch.set_rng_state(saved["torch"])
    if saved["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(saved["cuda"], device)
    kind, keys, at, has_gauss, gauss = saved["numpy"]
    np.random.set_state((kind, keys.astype(np.uint32), at, has_gauss, gauss))
    version, numbers, spare = saved["python"]
    random.setstate((version, tuple(int(number) for number in numbers), spare))

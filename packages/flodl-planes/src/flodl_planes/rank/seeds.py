"""Random streams of a rank, and its share of an integrated GPU's memory: what is set up before a model is built."""

from __future__ import annotations

import random

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

"""What a rank says of its card in its hello, so that the hub can presume who is slowest."""

from __future__ import annotations

import torch

from flodl_wire.plane_messages import Gpu


def gpu_of(device: torch.device) -> Gpu | None:
    """None for a processor, and for a card that cannot be asked: that costs a guess and no run."""
    if device.type != "cuda":  # torch's word for both vendors' cards
        return None
    try:
        found = torch.cuda.get_device_properties(device)
    except (RuntimeError, AssertionError):
        return None
    return Gpu("rocm" if torch.version.hip else "cuda", found.major, found.total_memory >> 30)

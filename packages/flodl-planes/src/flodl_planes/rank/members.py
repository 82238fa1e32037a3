"""Which kind of windows a rank of each mode has."""

from __future__ import annotations

from flodl_planes.rank.member import RankWindows


def kind_of(mode: str) -> type[RankWindows]:
    """Loads torch.distributed only where it is used."""
    if mode == "cpu_async":
        from flodl_planes.rank.async_member import AsyncWindows

        return AsyncWindows
    if mode.startswith("nccl"):
        from flodl_planes.rank.direct_member import DirectWindows

        return DirectWindows
    return RankWindows

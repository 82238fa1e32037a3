"""Which kind of windows a process has: alone, or as a rank in one of the modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flodl_planes.rank.windows import Windows
from flodl_planes.role.place import LocalCluster, read_envelope
from flodl_wire.plane_messages import Terms

if TYPE_CHECKING:
    import torch

    from flodl_planes.rank.member import RankWindows


def windows_of(terms: Terms, place: LocalCluster, device: torch.device, restart: Callable[[], None]) -> Windows:
    """Those of this process's place. `restart`: as in RankWindows. Loads what the place needs, and no more:
    torch.distributed takes a while.
    """
    envelope = read_envelope()
    if envelope is None:
        from flodl_planes.rank.solo import SoloWindows

        return SoloWindows(terms, place)
    return _kind(terms.mode)(terms, place, envelope.relay_socket, device, restart)


def _kind(mode: str) -> type[RankWindows]:
    if mode == "cpu_async":
        from flodl_planes.rank.async_member import AsyncWindows

        return AsyncWindows
    if mode.startswith("nccl"):
        from flodl_planes.rank.direct_member import DirectWindows

        return DirectWindows
    from flodl_planes.rank.member import RankWindows

    return RankWindows

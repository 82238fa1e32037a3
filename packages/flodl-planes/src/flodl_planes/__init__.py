"""What a training script uses. Names arrive lazily: importing the package imports neither torch nor anything else
that is slow."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, without its import: nothing here can catch a Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from flodl_planes.rank.rendezvous import rendezvous
    from flodl_planes.rank.trainer import Trainer
    from flodl_planes.role.place import LocalCluster, local_cluster
    from flodl_planes.role.roles import Role, dispatch
    from flodl_wire.cluster_builder import ClusterBuilder
    from flodl_wire.result import RunResult

__all__ = ["ClusterBuilder", "LocalCluster", "Role", "RunResult", "Trainer", "dispatch", "local_cluster", "rendezvous"]

_HOMES = {
    "ClusterBuilder": "flodl_wire.cluster_builder",
    "LocalCluster": "flodl_planes.role.place",
    "Role": "flodl_planes.role.roles",
    "RunResult": "flodl_wire.result",
    "Trainer": "flodl_planes.rank.trainer",
    "dispatch": "flodl_planes.role.roles",
    "local_cluster": "flodl_planes.role.place",
    "rendezvous": "flodl_planes.rank.rendezvous",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

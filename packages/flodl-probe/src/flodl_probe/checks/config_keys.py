"""Keys of an older format in the cluster block: all of them, each with what took its place."""

from __future__ import annotations

from typing import Any

from flodl_probe.finding import Finding, error
from flodl_wire.config_refusal import MOVED, MOVED_LISTS

CHECK = "config"


def legacy(cluster: Any) -> list[Finding]:
    return [
        error(CHECK, f"{path} is a key of an older format", "no tool reads it any more", f"write it as {place}")
        for path, place in _walk(cluster, "cluster")
    ]


def without_legacy(cluster: Any) -> Any:
    """The same block without those keys, so that the rest can be judged too."""
    if isinstance(cluster, dict):
        return {
            key: without_legacy(value) for key, value in cluster.items() if key not in MOVED and key not in MOVED_LISTS
        }
    if isinstance(cluster, list):
        return [without_legacy(value) for value in cluster]
    return cluster


def _walk(value: Any, path: str) -> list[tuple[str, str]]:
    found = []
    if isinstance(value, dict):
        for key, child in value.items():
            here = f"{path}.{key}"
            if path.endswith(".env"):
                continue
            place = MOVED.get(key) or (MOVED_LISTS.get(key) if path == "cluster" else None)
            found += [(here, place)] if place else _walk(child, here)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            found += _walk(child, f"{path}[{index}]")
    return found

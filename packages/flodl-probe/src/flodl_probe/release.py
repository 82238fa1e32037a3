"""Which release of flodl-probe this is."""

from __future__ import annotations


def version() -> str:
    from importlib import metadata

    return metadata.version("flodl-probe")

"""The folders of a publish, or of a worker's copy: the tree, and beside it what must not be in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flodl_publish import run_manifest


@dataclass(frozen=True)
class Place:
    root: Path

    @property
    def tree(self) -> Path:
        return self.root / "tree"

    @property
    def manifest(self) -> Path:
        return self.tree / run_manifest.NAME

    @property
    def state(self) -> Path:
        """Lock and indexes."""
        return self.root / ".publish"

    @property
    def unfinished(self) -> Path:
        """There from a fetch's begin to its good end; with something in it since it changed the copy."""
        return self.state / "unfinished"

    @property
    def fetched(self) -> Path:
        """A remote source, as it came."""
        return self.root / "fetch"

    def gate(self, name: str) -> Path:
        """One check-build: a copy of the tree with all that the build makes, kept for the next time."""
        return self.root / "gate" / name.replace("/", "-")

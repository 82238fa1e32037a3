"""The builds that lie in a project, by the names of their folders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from flodl_ncclbuild import project

_NAME = re.compile(r"v(\d+\.\d+\.\d+)-(sm\d+(?:-sm\d+)*)")


class Build(NamedTuple):
    path: Path  # of the library
    version: str
    archs: tuple[str, ...]
    bytes: int

    def as_dict(self) -> dict[str, object]:
        return {"path": str(self.path), "version": self.version, "archs": list(self.archs), "bytes": self.bytes}


def folder() -> Path:
    return project.builds(project.root())


def builds() -> list[Build]:
    """Every build whose library is there, by version, then archs. Folders of other names are somebody else's."""
    found = []
    for entry in folder().iterdir() if folder().is_dir() else ():
        match, path = _NAME.fullmatch(entry.name), project.library_in(entry)
        if match and path.is_file():
            found.append(Build(path, match[1], tuple(match[2].split("-")), path.stat().st_size))
    return sorted(found, key=lambda build: ([int(n) for n in build.version.split(".")], build.archs))

"""Where the other tools are: the hub's and the fan-out's commands, found before anything starts."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from flodl_wire.faults import Refused


@dataclass(frozen=True)
class Tools:
    """Command lines of the children, without what each start adds."""

    hub: list[str]
    fanout: list[str]

    @classmethod
    def find(cls, *, fanout: bool) -> Tools:
        """The installed ones. Raises Refused naming the package to install."""
        return cls([sibling("flodl-planes"), "hub"], [sibling("flodl-agent"), "fanout"] if fanout else [])


def sibling(executable: str) -> str:
    """The path of another tool of ours, named like its package: beside the running interpreter (a venv's link is not
    followed), else on PATH. Raises Refused.
    """
    beside = Path(sys.executable).parent / executable
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which(executable)
    if found is None:
        raise Refused(
            "missing-tool", f"cannot start {executable}", "it is not installed here", f"pip install {executable}"
        )
    return found

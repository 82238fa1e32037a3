"""Where the executables of the other packages are: beside this one, else on PATH."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from flodl_wire.faults import Refused


def find(name: str) -> str:
    """The path of the executable `name`. Raises Refused naming the package to install.

    The folder of ``sys.executable`` comes first, its symlinks unresolved: a venv's python is a link to one that has no
    siblings.
    """
    beside = Path(sys.executable).parent / name
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which(name)
    if found:
        return found
    raise Refused(
        "not-installed",
        f"cannot find {name}",
        f"it is neither in {beside.parent} nor on PATH",
        f"{sys.executable} -m pip install {name}",
    )

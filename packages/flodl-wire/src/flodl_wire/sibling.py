"""Where the executables of the other packages are: they are started, never imported."""

from __future__ import annotations

import os
import sys

from flodl_wire.faults import Refused


def find(name: str) -> str | None:
    """The path of the executable `name`: beside this Python first (one environment belongs together), then on PATH.

    The folder is that of `sys.executable` as it stands: a virtual environment's `python` is a symlink, and its tools
    lie beside the link, not beside its target.
    """
    beside = f"{_own_folder()}/{name}"
    if os.access(beside, os.X_OK):
        return beside
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = f"{folder or os.curdir}/{name}"
        if os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112 - pathlib would cost fdl half a start
            return path
    return None


def require(name: str) -> str:
    """`find`, or Refused with the line that installs it: an executable of ours is named like its package."""
    found = find(name)
    if found is None:
        raise Refused(
            "not-installed",
            f"cannot find {name}",
            f"it is neither in {_own_folder()} nor on PATH",
            f"{sys.executable} -m pip install {name}",
        )
    return found


def _own_folder() -> str:
    return sys.executable.rpartition("/")[0]

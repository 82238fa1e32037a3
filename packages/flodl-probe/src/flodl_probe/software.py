"""Which Python and which torch a program started from here would find, from package metadata: nothing is imported."""

from __future__ import annotations

import platform
import sys
from importlib import metadata


def python() -> dict[str, str]:
    return {"version": platform.python_version(), "executable": sys.executable}


def torch() -> str | None:
    """The version of the installed torch ("2.13.0+cu128"), None when there is none. Importing it would cost seconds."""
    try:
        return metadata.version("torch")
    except (metadata.PackageNotFoundError, ValueError):
        return None

"""Executables that a host needs, found the way the tools look for them, and the flodl packages beside this one."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from flodl_probe.login_shell import asked

PACKAGES = ("flodl-wire", "flodl-window", "flodl-agent", "flodl-planes", "flodl-publish", "flodl-probe", "flodl-cli")


def find(names: list[str], project: Path | None, home: Path, beside_us: bool = False) -> dict[str, str | None]:
    """Our own tools as the fan-out finds them: the project's environment, on the asking box the one it runs in,
    ~/.local/bin, PATH. Others on PATH.
    """
    found: dict[str, str | None] = {}
    for name in names:
        places = []
        if name.startswith("flodl-"):
            ours = Path(sys.executable).parent if beside_us else None
            folders = (project and project / ".venv/bin", ours, home / ".local/bin")
            places = [folder / name for folder in folders if folder]
        here = next((str(place) for place in places if os.access(place, os.X_OK)), None)
        found[name] = here or shutil.which(name) or (asked(name) if name.startswith("flodl-") else None)
    return found


def packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except (metadata.PackageNotFoundError, ValueError):
            continue
    return found

"""The lines that make ranks load a library that was built: `env:` of a host in fdl.cluster.yml."""

from __future__ import annotations

import json
import re
from pathlib import Path


def block(library: Path) -> str:
    """YAML, indented as it stands in fdl.cluster.yml, below a host of `cluster:` `workers:`."""
    path = str(library)
    plain = re.fullmatch(r"/[\w./+@~-]+", path, re.ASCII)
    return f"      env:\n        LD_PRELOAD: {path if plain else json.dumps(path)}\n"

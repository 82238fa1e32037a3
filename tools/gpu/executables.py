"""`fdl` and its siblings from this checkout, without an installation: where pip cannot reach anything."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]


def sources() -> list[str]:
    """What belongs on PYTHONPATH."""
    return [str(path) for path in sorted(ROOT.glob("packages/*/src"))]


def lay_out(folder: Path) -> list[str]:
    """One executable file for each of the packages' scripts; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for project in sorted(ROOT.glob("packages/*/pyproject.toml")):
        scripts = tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("scripts", {})
        for name, target in scripts.items():
            module, _, function = target.partition(":")
            path = folder / name
            path.write_text(
                f"#!{sys.executable}\nimport sys\n\nsys.path[:0] = {sources()!r}\n"
                f"from {module} import {function}\n\nsys.exit({function}())\n",
                encoding="utf-8",
            )
            path.chmod(0o755)
            names.append(name)
    return names

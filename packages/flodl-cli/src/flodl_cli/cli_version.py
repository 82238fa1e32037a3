"""`fdl version`: every flodl package installed beside this one."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

from flodl_cli.command_line import CommandLine
from flodl_wire import exits

PACKAGES = (
    "flodl-cli",
    "flodl-wire",
    "flodl-window",
    "flodl-agent",
    "flodl-planes",
    "flodl-publish",
    "flodl-probe",
    "flodl-ncclbuild",
)

HELP = """\
usage: fdl version [--json]

Shows the versions of all flodl packages installed beside this one, of Python and of torch.
"""


def main(line: CommandLine) -> int:
    if any(word in ("-h", "--help") for word in line.rest):
        print(HELP, end="")
        return exits.DONE
    versions = {name: _version(name) for name in PACKAGES}
    if "--json" in line.rest:
        import json

        print(json.dumps({"packages": versions, "python": platform.python_version(), "torch": _version("torch")}))
        return exits.DONE
    for name, version in versions.items():
        print(f"{name:<16} {version or 'not installed'}")
    print(f"{'python':<16} {platform.python_version()} ({sys.executable})")
    print(f"{'torch':<16} {_version('torch') or 'not installed'}")
    return exits.DONE


def show_own_version() -> int:
    print(f"fdl {_version('flodl-cli')}")
    return exits.DONE


def _version(name: str) -> str | None:
    """From the package's metadata: nothing is imported, torch least of all."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

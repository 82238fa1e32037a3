"""`flodl-ncclbuild check`: is this file a libnccl that loads here, and of which version."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from flodl_ncclbuild import library
from flodl_wire import exits
from flodl_wire.faults import printable


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-ncclbuild check",
        description="Load a libnccl (in a process of its own) and print its version. "
        "Hosts train together only when their major.minor are equal.",
    )
    made.add_argument("file", type=Path, help="e.g. libnccl.so.2")
    made.add_argument("--json", action="store_true", help="one document: path, version, major, minor, patch")
    return made


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    major, minor, patch = library.version_of(options.file)
    version = f"{major}.{minor}.{patch}"
    if options.json:
        document = {"path": str(options.file), "version": version, "major": major, "minor": minor, "patch": patch}
        print(json.dumps(document))
    else:
        print(f"{printable(str(options.file))}: NCCL {version}")
    return exits.DONE

"""`flodl-ncclbuild list`: what has been built in this project."""

from __future__ import annotations

import argparse
import json
import sys

from flodl_wire import exits
from flodl_wire.faults import printable


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-ncclbuild list",
        description="List the libnccl builds of this project, below libtorch/nccl/builds. Loads none of them.",
    )
    made.add_argument("--json", action="store_true", help='one document: {"builds": [{"path", "version", "archs", …}]}')
    return made


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    from flodl_ncclbuild import shelf

    builds = shelf.builds()
    if options.json:
        print(json.dumps({"builds": [build.as_dict() for build in builds]}))
        return exits.DONE
    for build in builds:
        print(printable(f"NCCL {build.version}  {', '.join(build.archs)}  {build.bytes / 1e6:.0f} MB  {build.path}"))
    if not builds:
        print(f"none below {printable(str(shelf.folder()))}; `fdl nccl build` makes one", file=sys.stderr)
    return exits.DONE

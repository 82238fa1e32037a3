"""`flodl-ncclbuild check`: is this file a libnccl that loads here, of which version, and for which cards."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from flodl_wire import exits
from flodl_wire.faults import printable


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-ncclbuild check",
        description="Load a libnccl (in a process of its own) and print its version and the GPU architectures inside. "
        "Hosts train together only when their major.minor are equal.",
    )
    made.add_argument("file", type=Path, help="e.g. libnccl.so.2")
    made.add_argument(
        "--json", action="store_true", help="one document: path, version, major, minor, patch, archs, ptx, archs_by"
    )
    return made


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    from flodl_ncclbuild import archs, contents, library

    major, minor, patch = library.version_of(options.file)
    inside = contents.of(options.file)
    version, path = f"{major}.{minor}.{patch}", printable(str(options.file))
    if options.json:
        document = {
            "path": str(options.file),
            "version": version,
            "major": major,
            "minor": minor,
            "patch": patch,
            "archs": [archs.name(arch) for arch in inside.codes],
            "ptx": [archs.name(arch) for arch in inside.ptx],
            "archs_by": inside.told_by,
        }
        print(json.dumps(document))
        return exits.DONE
    print(f"{path}: NCCL {version}")
    ptx = f", PTX {archs.listed(inside.ptx)}" if inside.ptx else ""
    print(f"for {archs.listed(inside.codes) or 'no GPU: it holds no device code'}{ptx} (by {inside.told_by})")
    return exits.DONE

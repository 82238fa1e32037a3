"""``python -m flodl_wire schema [NAME]`` and ``python -m flodl_wire vectors [--write] FOLDER``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from flodl_wire import exits, faults


def parser() -> argparse.ArgumentParser:
    ours = argparse.ArgumentParser(prog="python -m flodl_wire", description="What the tools say to one another.")
    verbs = ours.add_subparsers(dest="verb", required=True, metavar="VERB")
    schema = verbs.add_parser("schema", help="print the JSON Schema of a document; without a name, list them")
    schema.add_argument("name", nargs="?", metavar="NAME")
    vectors = verbs.add_parser("vectors", help="compare a folder of test vectors with this code, or write them")
    vectors.add_argument("folder", type=Path, metavar="FOLDER", help="e.g. docs/vectors")
    vectors.add_argument("--write", action="store_true", help="write the files instead of comparing them")
    return ours


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if arguments.verb == "vectors":
        return _vectors(arguments.folder, arguments.write)
    return _schema(arguments.name)


def _schema(name: str | None) -> int:
    from flodl_wire import schemas

    if name is None:
        width = max(map(len, schemas.SCHEMAS))
        for known, (_, what) in schemas.SCHEMAS.items():
            print(f"{known:{width}}  {what}")
    else:
        print(json.dumps(schemas.schema(name), indent=2, ensure_ascii=False))
    return exits.DONE


def _vectors(folder: Path, write: bool) -> int:
    from flodl_wire import vectors

    if write:
        for path in vectors.write(folder):
            print(path)
        return exits.DONE
    differing = vectors.differing(folder)
    if differing:
        raise faults.Broken(
            "vectors-differ",
            f"cannot stand by {', '.join(differing)}",
            "the code here makes other bytes",
            "if the protocol was meant to change: a new version in docs/protocol.md, then --write",
        )
    print(f"{folder}: every vector holds")
    return exits.DONE


if __name__ == "__main__":
    sys.exit(faults.guarded("python -m flodl_wire", main))

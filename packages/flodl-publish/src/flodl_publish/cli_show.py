"""`flodl-publish show`: what a published run is."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path

from flodl_publish import run_manifest
from flodl_publish.run_manifest import RunManifest
from flodl_wire import exits
from flodl_wire.faults import printable


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-publish show",
        description="Read and check the manifest of a published run (.fdl-run.yml). "
        "Exit 0 when it is a valid one, 1 when it is not or is not there.",
    )
    made.add_argument("manifest", type=Path, help="the file, the tree that holds it, or the served folder")
    made.add_argument("--json", action="store_true", help="one document with every key")
    return made


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    path = run_manifest.path_in(options.manifest)
    manifest = run_manifest.read(path)
    if options.json:
        print(json.dumps({"manifest": str(path), **manifest.as_dict()}))
    else:
        print(render(manifest, time.time()))
    return exits.DONE


def render(manifest: RunManifest, now: float) -> str:
    """For people; `now` in unix seconds."""
    rows = [
        ("run", manifest.run),
        ("published", f"{_age(now - manifest.published_epoch)} ago"),
        ("from", manifest.origin or "(not said)"),
        ("in", manifest.cwd or "the root of the tree"),
        ("build", manifest.build or "(the recipe the tree implies)"),
        ("runs", shlex.join([manifest.bin, *manifest.args])),
        ("toolchain", manifest.toolchain or "(not said)"),
    ]
    lines = [f"{name:<10} {printable(value)}" for name, value in rows]
    if not manifest.built:
        lines.append("NOT BUILT  published with --no-build: nothing has compiled this tree")
    return "\n".join(lines)


def _age(seconds: float) -> str:
    for name, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // size)
        if count >= 1:
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "less than a minute" if seconds >= -60 else "a moment that this clock has yet to reach, not"

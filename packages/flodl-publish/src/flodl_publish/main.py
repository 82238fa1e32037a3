"""The executable `flodl-publish`. Each verb is a file of its own, loaded when it is asked for."""

from __future__ import annotations

import sys

from flodl_wire.faults import guarded, usage

HELP = """\
usage: flodl-publish show MANIFEST [--json]
       flodl-publish --version

Puts a run where a fleet can pull it, and pulls it. In this version:
  show    read and check the manifest of a published run
"""


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    return guarded("flodl-publish", lambda: run(words), as_json="--json" in words)


def run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from importlib import metadata

        print(f"flodl-publish {metadata.version('flodl-publish')}")
        return 0
    if words[:1] == ["show"]:
        from flodl_publish.cli_show import main as verb_main

        return verb_main(words[1:])
    if not words or words[0] in ("-h", "--help"):
        print(HELP, end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    raise usage(f"cannot do `flodl-publish {words[0]}`", "this version has no such command", "it has: show")

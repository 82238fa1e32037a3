"""The executable `flodl-ncclbuild`. Each verb is a file of its own, loaded when it is asked for."""

from __future__ import annotations

import sys

from flodl_wire.faults import guarded, usage

HELP = """\
usage: flodl-ncclbuild check FILE [--json]
       flodl-ncclbuild --version

Builds one libnccl for mismatched hosts. In this version:
  check   load a libnccl and print its version
"""


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    return guarded("flodl-ncclbuild", lambda: run(words), as_json="--json" in words)


def run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from importlib import metadata

        print(f"flodl-ncclbuild {metadata.version('flodl-ncclbuild')}")
        return 0
    if words[:1] == ["check"]:
        from flodl_ncclbuild.cli_check import main as verb_main

        return verb_main(words[1:])
    if not words or words[0] in ("-h", "--help"):
        print(HELP, end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    raise usage(f"cannot do `flodl-ncclbuild {words[0]}`", "this version has no such command", "it has: check")

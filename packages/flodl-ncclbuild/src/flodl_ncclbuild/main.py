"""The executable `flodl-ncclbuild`. Each verb is a file of its own, loaded when it is asked for."""

import sys

HELP = """\
usage: flodl-ncclbuild build [--tag TAG] [--archs LIST] [--native] [--dry-run] ...
       flodl-ncclbuild list [--json]
       flodl-ncclbuild check FILE [--json]
       flodl-ncclbuild --version

Builds one libnccl for mismatched hosts: NCCL refuses to talk across different
major.minor versions, and wheels leave out the code of older GPUs.

  build   build one from source, in Docker or with the nvcc of this box
  list    the builds of this project
  check   load one and print its version and the GPUs it is for

`flodl-ncclbuild COMMAND --help` says more.
"""
VERBS = ("build", "list", "check")


def main(argv: list[str] | None = None) -> int:
    try:  # a Ctrl-C while this is imported has no guard yet
        from flodl_wire.faults import guarded

        words = sys.argv[1:] if argv is None else argv
        return guarded("flodl-ncclbuild", lambda: run(words), as_json="--json" in words)
    except KeyboardInterrupt:
        return 130  # exits.INTERRUPTED


def run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from importlib import metadata

        print(f"flodl-ncclbuild {metadata.version('flodl-ncclbuild')}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(HELP, end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] == "build":
        from flodl_ncclbuild.cli_build import main as verb_main
    elif words[0] == "list":
        from flodl_ncclbuild.cli_list import main as verb_main
    elif words[0] == "check":
        from flodl_ncclbuild.cli_check import main as verb_main
    else:
        from flodl_wire.faults import usage

        raise usage(f"cannot do `flodl-ncclbuild {words[0]}`", "there is no such command", f"one of {', '.join(VERBS)}")
    return verb_main(words[1:])

"""The executable `flodl-publish`. Each verb is a file of its own, loaded when it is asked for."""

import sys

HELP = """\
usage: flodl-publish publish [SOURCE] [--bin FILE] [options] [-- ARGS…]
       flodl-publish fetch SOURCE [--to DIR] [options]
       flodl-publish build [DIR] [options]
       flodl-publish show MANIFEST [--json]
       flodl-publish --version

Puts a run where a fleet can pull it, and pulls it.

  publish  copy a source into the served folder, build it as a gate, commit it
  fetch    pull a published run to this box and prove it whole
  build    build a fetched run against the torch that this box holds
  show     read and check the manifest of a published run

`flodl-publish COMMAND --help` says more.
"""
VERBS = ("publish", "fetch", "build", "show")


def main(argv: list[str] | None = None) -> int:
    try:  # a Ctrl-C while this is imported has no guard yet
        from flodl_wire.faults import guarded

        words = sys.argv[1:] if argv is None else argv
        ours = words[: words.index("--")] if "--" in words else words
        return guarded("flodl-publish", lambda: run(words), as_json="--json" in ours)
    except KeyboardInterrupt:
        return 130  # exits.INTERRUPTED


def run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from importlib import metadata

        print(f"flodl-publish {metadata.version('flodl-publish')}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(HELP, end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] == "publish":
        from flodl_publish.cli_publish import main as verb_main
    elif words[0] == "fetch":
        from flodl_publish.cli_fetch import main as verb_main
    elif words[0] == "build":
        from flodl_publish.cli_build import main as verb_main
    elif words[0] == "show":
        from flodl_publish.cli_show import main as verb_main
    else:
        from flodl_wire.faults import usage

        raise usage(f"cannot do `flodl-publish {words[0]}`", "there is no such command", f"it has: {', '.join(VERBS)}")
    return verb_main(words[1:])

"""``flodl-planes``: the coordinator of a run, and the relay of a host."""

import sys

VERBS = {
    "hub": "coordinate one run's averages (started by flodl-window launch)",
    "relay": "carry one host's averages (started by flodl-agent run)",
}


def main() -> int:
    try:  # a Ctrl-C while this is imported has no guard yet
        from flodl_wire.faults import guarded

        return guarded("flodl-planes", lambda: dispatch(sys.argv[1:]))
    except KeyboardInterrupt:
        return 130  # exits.INTERRUPTED


def dispatch(argv: list[str]) -> int:
    """Hand over to ``cli_<verb>``; the exit code."""
    import importlib

    from flodl_wire import exits
    from flodl_wire.faults import usage

    verb = argv[0] if argv else "--help"
    if verb in ("-h", "--help", "help"):
        print("usage: flodl-planes VERB …\n\nMoves and averages the tensors of a flodl run.\n")
        print("\n".join(f"  {name:8} {line}" for name, line in VERBS.items()))
        print("\n`flodl-planes VERB --help` says more; `flodl-planes --version` which version this is.")
        return exits.DONE if argv else exits.USAGE
    if verb in ("-V", "--version"):
        from importlib.metadata import version

        print(f"flodl-planes {version('flodl-planes')}")
        return exits.DONE
    if verb not in VERBS:
        raise usage(f"cannot run {verb!r}", "flodl-planes has no such verb", f"verbs: {', '.join(VERBS)}")
    code: int = importlib.import_module(f"flodl_planes.cli_{verb}").main(argv[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())

"""``flodl-agent``: one host's agent, and the fan-out that starts agents."""

import sys

VERBS = {
    "run": "be this host's agent for one run (spec on stdin)",
    "fanout": "start an agent on every host of a roster (spec on stdin)",
    "join": "walk in: offer this box to a run whose window is open",
    "libtorch": "fetch a build of torch, list those here, choose the active one",
}


def main() -> int:
    try:  # a Ctrl-C while this is imported has no guard yet
        from flodl_wire.faults import guarded

        words = sys.argv[1:]
        return guarded("flodl-agent", lambda: dispatch(words), as_json=words[:1] == ["libtorch"] and "--json" in words)
    except KeyboardInterrupt:
        return 130  # exits.INTERRUPTED


def dispatch(argv: list[str]) -> int:
    """Hand over to ``cli_<verb>``; the exit code."""
    import importlib

    from flodl_wire import exits
    from flodl_wire.faults import usage

    verb = argv[0] if argv else "--help"
    if verb in ("-h", "--help", "help"):
        print("usage: flodl-agent VERB …\n\nRepresents one host in a flodl run.\n")
        print("\n".join(f"  {name:8} {line}" for name, line in VERBS.items()))
        print("\n`flodl-agent VERB --help` says more; `flodl-agent --version` which version this is.")
        return exits.DONE if argv else exits.USAGE
    if verb in ("-V", "--version"):
        from importlib.metadata import version

        print(f"flodl-agent {version('flodl-agent')}")
        return exits.DONE
    if verb not in VERBS:
        raise usage(f"cannot run {verb!r}", "flodl-agent has no such verb", f"verbs: {', '.join(VERBS)}")
    code: int = importlib.import_module(f"flodl_agent.cli_{verb}").main(argv[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())

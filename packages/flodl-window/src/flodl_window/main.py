"""``flodl-window``: finds the verb and hands over to its cli_<verb> module. Imports nothing a verb does not need."""

import sys

VERBS = {
    "launch": "start the roster's agents and run a command on every rank",
    "serve": "the same without starting agents: they dial in by themselves",
    "status": "what a run is doing",
    "start": "fire the start switch of a run that is held",
    "why": "what broke first in a run, and what to try",
    "runs": "what the project has run",
    "report": "write a run's report: one file for a browser",
}

HELP = (
    "usage: flodl-window VERB …\n\nDecides who is in the run: one port, one window, one verdict.\n\nverbs:\n"
    + "".join(f"  {verb:<9}{line}\n" for verb, line in VERBS.items())
)


def main() -> int:
    try:  # a Ctrl-C while this is imported has no guard yet
        from flodl_wire.faults import guarded

        words = sys.argv[1:]
        return guarded("flodl-window", lambda: dispatch(words), as_json="--json" in words[: _tail(words)])
    except KeyboardInterrupt:
        return 130  # exits.INTERRUPTED


def _tail(words: list[str]) -> int:
    return words.index("--") if "--" in words else len(words)


def dispatch(words: list[str]) -> int:
    verb, rest = (words[0], words[1:]) if words else ("", [])
    if verb in ("-h", "--help", "help"):
        sys.stdout.write(HELP)
        return 0
    if verb in ("-V", "--version", "version"):
        from importlib.metadata import version

        print(f"flodl-window {version('flodl-window')}")
        return 0
    if verb == "status":
        from flodl_window.cli_status import main as status

        return status(rest)
    if verb == "start":
        from flodl_window.cli_start import main as start

        return start(rest)
    if verb == "launch":
        from flodl_window.cli_launch import main as launch

        return launch(rest)
    if verb == "serve":
        from flodl_window.cli_serve import main as serve

        return serve(rest)
    if verb == "why":
        from flodl_window.cli_why import main as why

        return why(rest)
    if verb == "runs":
        from flodl_window.cli_runs import main as runs

        return runs(rest)
    if verb == "report":
        from flodl_window.cli_report import main as report

        return report(rest)
    from flodl_wire.faults import usage

    if not verb:
        raise usage("cannot do nothing", "no verb follows", f"one of {', '.join(VERBS)}; flodl-window --help says more")
    raise usage(f"cannot do {verb!r}", "there is no such verb", f"one of {', '.join(VERBS)}")


if __name__ == "__main__":
    sys.exit(main())

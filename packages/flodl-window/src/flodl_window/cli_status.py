"""``flodl-window status``: what a run is doing, asked of its port. Hot: no msgspec, asyncio, http.client, argparse."""

from __future__ import annotations

import sys

from flodl_window.asking import PHASES, candidates, fetch, shown, way_on
from flodl_wire import exits
from flodl_wire.faults import Transient, usage

HELP = """usage: flodl-window status [--addr HOST[:PORT]] [--json] [--watch] [--wait PHASE [--timeout S]]

What a run is doing: its phase and why, who is in with what, who is missing, who was
refused and how to mend it, ranks and rates, countdowns.

options:
  --addr HOST[:PORT]  the controller (port 1337 unless said); without it the cluster's
                      own controller, or the project's last run on this box
  --json              the state as one JSON document, as the controller serves it
  --watch             once a second until the run is over; on a terminal in place
  --wait PHASE        until the run is in that phase or past it: waiting, staging,
                      forming, training or done; a run that need not be there yet
  --timeout S         seconds --wait may take (default: no end)
  -h, --help          this text

Exit codes: 0 the state was fetched (--wait: the phase is reached), 1 nobody answered
(--wait: the run failed, ended, or the time is over), 2 usage.
"""


def main(argv: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    values: dict[str, str] = {}
    flags: set[str] = set()
    while words:
        word, equals, value = words.pop(0).partition("=")
        if word in ("-h", "--help"):
            sys.stdout.write(HELP)
            return exits.DONE
        if word in ("--json", "--watch") and not equals:
            flags.add(word)
        elif word in ("--addr", "--wait", "--timeout"):
            if not equals and not words:
                raise usage(f"cannot use {word!r}", "its value must follow", "flodl-window status --help says more")
            values[word] = value if equals else words.pop(0)
        else:
            raise usage(f"cannot use {word!r}", "it is no option of status", "flodl-window status --help says more")
    seconds = _check(values, flags)
    where = candidates(values.get("--addr"))
    if "--wait" in values or "--watch" in flags:
        from flodl_window import status_watch

        if "--watch" in flags:
            return status_watch.watch(where)
        code = status_watch.wait(where, values["--wait"], seconds)
        if code != exits.DONE or "--json" not in flags:
            return code
    try:
        at, body = fetch(where)
    except Transient as fault:
        fault.fix = way_on(values.get("--addr"))
        raise
    if "--json" in flags:
        sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
        return exits.DONE
    print(shown(at, body))
    return exits.DONE


def _check(values: dict[str, str], flags: set[str]) -> float | None:
    """The seconds of --timeout, None for no end. Raises Refused for words that do not go together."""
    help_line = "flodl-window status --help says more"
    if "--wait" in values and values["--wait"] not in PHASES:
        raise usage(
            f"cannot wait for {values['--wait']!r}", "it is no phase that a run gets to", f"one of {', '.join(PHASES)}"
        )
    if "--wait" in values and "--watch" in flags:
        raise usage("cannot use --wait with --watch", "one waits in silence, the other shows", "leave one out")
    if "--json" in flags and "--watch" in flags:
        raise usage("cannot use --json with --watch", "--json prints exactly one document", "leave one out")
    if "--timeout" not in values:
        return None
    if "--wait" not in values:
        raise usage("cannot use --timeout", "it bounds --wait, which is not there", help_line)
    try:
        seconds = float(values["--timeout"])
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise usage(f"cannot use --timeout {values['--timeout']}", "it must be seconds, more than 0", help_line)
    return seconds

"""``status --wait`` for scripts and ``status --watch`` for eyes: the same look, again and again."""

from __future__ import annotations

import json
import sys
import time

from flodl_window.asking import PHASES, fetch, shown
from flodl_wire import exits, outlets
from flodl_wire.faults import Refused, Transient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flodl_wire.address import Address

EVERY = 0.25  # seconds between two looks of --wait
WATCH_EVERY = 1.0


def wait(where: list[Address], wanted: str, seconds: float | None) -> int:
    """Until the run is in phase `wanted` or past it. Nobody there yet is waited for; a run that was there and is gone,
    or has failed, is not. Raises Transient or Refused with what was seen last.
    """
    until = None if seconds is None else time.monotonic() + seconds
    phase, why = "", ""
    while True:
        try:
            state = json.loads(fetch(where)[1])
            phase, why = str(state.get("phase", "")), str(state.get("why", ""))
        except Transient as fault:
            if phase:
                what = f"cannot wait for {wanted} any longer"
                raise Refused("run-gone", what, f"the run was {phase} and its controller is gone") from None
            why = fault.why
        if phase == "failed":
            raise Refused("run-failed", f"cannot wait for {wanted} any longer", f"the run failed: {why}")
        if phase in PHASES and PHASES.index(phase) >= PHASES.index(wanted):
            return exits.DONE
        left = EVERY if until is None else until - time.monotonic()
        if left <= 0:
            seen = f"the run is {phase}: {why}" if phase else why
            raise Transient("wait-over", f"not {wanted} within {seconds:g} s", seen)
        time.sleep(min(EVERY, left))


def watch(where: list[Address]) -> int:
    """Until the run is over. On a terminal one screen that changes, elsewhere a text whenever something has changed
    but the clock.
    """
    terminal = sys.stdout.isatty()
    last = ""
    while True:
        try:
            at, body = fetch(where)
        except Transient:
            if last:
                print("the run is over: its controller is gone", file=sys.stderr)
                return exits.DONE
            raise
        state = json.loads(body)
        now = json.dumps({key: state.get(key) for key in ("phase", "members", "ranks", "refused", "start_armed")})
        if terminal:
            sys.stdout.write("\x1b[H\x1b[2J" + shown(at, body) + "\n")
        elif now != last:
            print(shown(at, body))
        sys.stdout.flush()
        last = now
        if state.get("phase") in ("done", "failed") or outlets.reader_left():
            return exits.DONE
        time.sleep(WATCH_EVERY)

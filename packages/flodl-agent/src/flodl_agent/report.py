"""How one attempt of an agent went: told on the way, to the person at this box, and at the end, to who started it.

An agent of the fan-out tells the controller everything, and nobody sits here. A walk-in's person does, so its story is
told in a few lines. `Ending` is what ``flodl-agent run --json`` prints: `fdl join` decides by it whether to dial again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

import msgspec

from flodl_agent import events as ev
from flodl_wire import exits
from flodl_wire.faults import Fault, Refused
from flodl_wire.join_messages import Accept, WorldFormed

Say = Callable[[str], None]


def speak(host: str) -> Say:
    """Lines for the person at this box, with the host in front. Where they go may be a full disk or a reader that has
    left: that costs the lines, not the run.
    """

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"{host}: {text}", file=sys.stderr, flush=True)

    return say


class Ending(msgspec.Struct, omit_defaults=True):
    """`code` is the agent's exit code; `instance` names the window that let it in, "" when none did."""

    code: int
    instance: str = ""
    formed: bool = False  # a world was formed with this host in it
    permanent: bool = False  # nothing was dialled, and dialling later would not help
    why: str = ""  # one sentence, when it did not go well
    fix: str = ""


class Story:
    """Fed with every event of one agent; `tell` gets a line now and then."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._instance = ""
        self._formed = False
        self._failed = ""  # the first rank that did not end well by itself

    def saw(self, event: ev.Event) -> None:
        match event:
            case Accept():
                self._instance = event.instance
                ranks = ", ".join(map(str, event.ranks))
                self._tell(f"in, with rank{'s' if len(event.ranks) > 1 else ''} {ranks}; waiting for the world to form")
            case WorldFormed():
                self._formed = True
                world = event.envelope
                ranks = ", ".join(map(str, world.worker.ranks))
                self._tell(
                    f"the world has formed: {world.world_size} ranks on {world.num_workers} hosts, mode {world.mode}; "
                    f"here {'ranks' if len(world.worker.ranks) > 1 else 'rank'} {ranks} (run {world.run})"
                )
            case ev.Exited() if event.code != 0 and event.rank is not None:
                how = f"exit {event.code}" if event.signal is None else f"killed by signal {event.signal}"
                self._failed = self._failed or f"{event.name} ended: {how}"

    def ending(self, finish: ev.Finish) -> Ending:
        """The agent's own code, whatever its ranks' were: of a run with a roster the controller judges them."""
        fault = finish.fault
        why, fix = (str(fault), fault.fix) if fault else (finish.text, "")
        return Ending(finish.code, self._instance, self._formed, False, why, fix)

    def own_ending(self, finish: ev.Finish) -> Ending:
        """The same for the person at a walk-in's box: a rank that failed is what went wrong here."""
        ending = self.ending(finish)
        if self._failed and ending.code == exits.DONE:
            ending.code, ending.why = exits.NOT_DONE, self._failed
        return ending


def before_dialling(fault: Fault) -> Ending:
    """The ending of an agent that found something wrong with its own box."""
    permanent = isinstance(fault, Refused)
    return Ending(fault.exit_code, permanent=permanent, why=str(fault), fix=fault.fix)

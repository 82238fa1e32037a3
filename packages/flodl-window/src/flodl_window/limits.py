"""How long the run waits for what, in seconds. Read from the environment's scale once, by the shell; the machine gets
plain numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from flodl_window import verdict
from flodl_wire import deadlines

_LEAST_FORMATION, _LEAST_READY = 20.0, 60.0  # to load numpy or torch takes processor time, which no scale makes shorter


@dataclass(frozen=True)
class Limits:
    """Unscaled by default. An ending run has 10 s in all: TERM at once, KILL after `kill_grace` (both by the agents),
    then the fan-out's stdin is closed after `fanout_end`, it is hurried (it kills its agents) after `hurry`, and what
    is still there is killed after `give_up`.
    """

    silence: float = deadlines.SILENCE
    formation: float = deadlines.FORMATION
    ranks_ready: float = deadlines.RANKS_READY
    kill_grace: float = deadlines.KILL_GRACE
    grace: float = verdict.GRACE
    fanout_end: float = deadlines.KILL_GRACE + 2
    hurry: float = deadlines.KILL_GRACE + 3
    give_up: float = deadlines.KILL_GRACE + 4
    schema: float = 3.0  # an answer to AskSchema
    quiet: float = 2.5 * deadlines.BEAT  # after it a link may be a dead one
    last_word: float = 5.0  # from the last host's goodbye to the coordinator's report


def scaled() -> Limits:
    """The limits of this process, moved by FLODL_NET_TIMEOUT_SCALE."""
    wait = deadlines.deadline
    kill = min(deadlines.KILL_GRACE, wait(deadlines.KILL_GRACE))
    return Limits(
        silence=wait(deadlines.SILENCE),
        formation=max(_LEAST_FORMATION, wait(deadlines.FORMATION)),
        ranks_ready=max(_LEAST_READY, wait(deadlines.RANKS_READY)),
        kill_grace=kill,
        grace=deadlines.beat(verdict.GRACE),
        fanout_end=kill + min(2.0, wait(2.0)),
        hurry=kill + min(3.0, wait(3.0)),
        give_up=kill + min(3.0, wait(3.0)) + 1.0,  # to kill takes processor time, which no scale makes shorter
        schema=wait(3.0),
        quiet=deadlines.beat(2.5 * deadlines.BEAT),
        last_word=wait(5.0),
    )

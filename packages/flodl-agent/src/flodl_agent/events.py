"""What can happen to an agent, and what it can order. The controller's messages (flodl_wire.join_messages) are events
too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from flodl_wire.faults import Fault
from flodl_wire.join_messages import Abort, Accept, AskSchema, Beat, Echoed, JoinUp, Reject, WorldFormed

# ---- events, in the past tense


@dataclass(frozen=True)
class LinkOpened:
    """The sealed channel to the controller stands."""

    own_address: str = ""  # this box's end of it


@dataclass(frozen=True)
class DialFailed:
    """One try did not get through. `kind`: refused | timeout | route | name | other; `fault` when trying again is no
    use.
    """

    kind: str
    text: str = ""
    fault: Fault | None = None


@dataclass(frozen=True)
class LinkLost:
    why: str


@dataclass(frozen=True)
class StdinClosed:
    """Who started us has gone, or wants us to end."""


@dataclass(frozen=True)
class Signalled:
    name: str  # SIGTERM, SIGINT, SIGHUP


@dataclass(frozen=True)
class Started:
    name: str
    rank: int | None


@dataclass(frozen=True)
class Noted:
    """The keeper has something to say to people."""

    text: str


@dataclass(frozen=True)
class CannotStart:
    """A process could not be started; the keeper is ending the others (or was never there: `keeper` False)."""

    fault: Fault
    keeper: bool = True


@dataclass(frozen=True)
class Exited:
    """A process has ended and all it printed has been sent. Exactly one of `code` and `signal` is set."""

    name: str
    rank: int | None
    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    tail: list[str] = field(default_factory=list)
    stood_still_s: float = 0.0  # it was stopped for so long behind its training, and the keeper ended it for that


@dataclass(frozen=True)
class KeeperSilent:
    """The keeper has not answered for so long that it must be stopped or stuck. Comes again while it stays so."""

    seconds: float


@dataclass(frozen=True)
class KeeperEnded:
    """Nothing of the world lives here any more. `clean`: the keeper saw to it; else it died and we have swept behind
    it.
    """

    clean: bool
    left: int = 0  # processes that no signal ends


@dataclass(frozen=True)
class Ticked:
    pass


Event: TypeAlias = (
    LinkOpened
    | DialFailed
    | LinkLost
    | StdinClosed
    | Signalled
    | Started
    | Noted
    | CannotStart
    | Exited
    | KeeperSilent
    | KeeperEnded
    | Ticked
    | Accept
    | Reject
    | WorldFormed
    | Abort
    | Beat
    | AskSchema
    | Echoed
)

# ---- effects, as orders


@dataclass(frozen=True)
class Dial:
    """Try once, for `seconds` at most; LinkOpened or DialFailed answers."""

    seconds: float


@dataclass(frozen=True)
class Send:
    message: JoinUp


@dataclass(frozen=True)
class Launch:
    """Start the keeper with the processes of this world."""

    formed: WorldFormed


@dataclass(frozen=True)
class BeatKeeper:
    pass


@dataclass(frozen=True)
class TellTrained:
    """Training is whole: the keeper ends who stands still from now on."""


@dataclass(frozen=True)
class StopKeeper:
    """TERM to everything, KILL after `grace` seconds."""

    grace: float


@dataclass(frozen=True)
class KillKeeper:
    """It hears nothing any more: KILL it, and with it everything."""


@dataclass(frozen=True)
class Finish:
    """Hang up (what was sent still goes out) and exit with `code`; `text` is the one line for stderr, `fault` the same
    for who started us.
    """

    code: int
    text: str = ""
    fault: Fault | None = field(default=None, compare=False)


Effect: TypeAlias = Dial | Send | Launch | BeatKeeper | TellTrained | StopKeeper | KillKeeper | Finish

"""What the run hears (events, in the past tense) and what it orders (effects). Plain data: `run.py` decides,
`launcher.py` carries out.
"""

from __future__ import annotations

from dataclasses import dataclass

from flodl_wire.faults import Fault
from flodl_wire.hub_messages import FromHub, Progress, ToHub
from flodl_wire.join_messages import Hello, JoinDown, JoinUp
from flodl_wire.specs import FanoutEvent

# events


@dataclass(frozen=True)
class HelloReceived:
    """A connection has authenticated and said who it is; `link` is the shell's number for it."""

    link: int
    hello: Hello
    address: str
    keyed: bool = True  # it proved the salt or token; False at an open door only


@dataclass(frozen=True)
class LinkMessage:
    link: int
    message: JoinUp


@dataclass(frozen=True)
class LinkClosed:
    link: int
    why: str = ""


@dataclass(frozen=True)
class FanoutReported:
    event: FanoutEvent


@dataclass(frozen=True)
class FanoutEnded:
    """The fan-out's own process ended; `how` in words ("exit 1", "killed by signal 9")."""

    how: str
    tail: tuple[str, ...] = ()


@dataclass(frozen=True)
class HubReported:
    message: FromHub


@dataclass(frozen=True)
class HubEnded:
    how: str
    tail: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunsServed:
    """What this box has ever published, the newest run last: it has just been looked at, or has changed."""

    runs: tuple[str, ...]


@dataclass(frozen=True)
class StartAsked:
    """POST /start. `trusted`: it came from this box or proved the token."""

    trusted: bool


@dataclass(frozen=True)
class StrangerRefused:
    """Somebody who speaks the protocol was turned away before any hello: wrong key, another version."""

    address: str
    fault: Fault


@dataclass(frozen=True)
class Interrupted:
    """The operator's signal, by name."""

    signal: str


@dataclass(frozen=True)
class Ticked:
    """Time has passed; comes several times a second."""


Event = (
    HelloReceived
    | LinkMessage
    | LinkClosed
    | FanoutReported
    | FanoutEnded
    | HubReported
    | HubEnded
    | RunsServed
    | StartAsked
    | StrangerRefused
    | Interrupted
    | Ticked
)

# effects


@dataclass(frozen=True)
class Send:
    link: int
    message: JoinDown


@dataclass(frozen=True)
class Shut:
    """Close a link once what was sent is out. `lost`: the other side no longer answers, drop it at once."""

    link: int
    lost: bool = False


@dataclass(frozen=True)
class TellHub:
    message: ToHub


@dataclass(frozen=True)
class Say:
    """A line for people."""

    text: str


@dataclass(frozen=True)
class ShowProgress:
    progress: Progress


@dataclass(frozen=True)
class Publish:
    """The state has changed: write it down."""


@dataclass(frozen=True)
class EndFanout:
    """Close the fan-out's stdin: it ends every agent it started."""


@dataclass(frozen=True)
class HurryFanout:
    """A fan-out that was told to end, and a second time now, kills what it still has, stopped agents too."""


@dataclass(frozen=True)
class KillChildren:
    """Out of patience: end hub and fan-out by force."""


@dataclass(frozen=True)
class AnswerStart:
    """The answer to StartAsked: an HTTP status and its JSON document."""

    status: int
    body: dict[str, object]


@dataclass(frozen=True)
class Conclude:
    """Verdict given, everything ended: write the result, serve the last state a little, exit with `code`."""

    code: int


Effect = (
    Send
    | Shut
    | TellHub
    | Say
    | ShowProgress
    | Publish
    | EndFanout
    | HurryFanout
    | KillChildren
    | AnswerStart
    | Conclude
)

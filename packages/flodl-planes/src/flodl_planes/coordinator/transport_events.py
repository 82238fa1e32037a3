"""What the hub's transport reports, in the order it happened: the events on its queue."""

from __future__ import annotations

from dataclasses import dataclass

from flodl_wire.plane_messages import RankUp


@dataclass(frozen=True)
class RelayJoined:
    """The relay of `host` has authenticated and speaks for `ranks`."""

    host: str
    ranks: list[int]


@dataclass(frozen=True)
class FromRank:
    """`message` as `rank` sent it, passed on by its relay."""

    rank: int
    message: RankUp


@dataclass(frozen=True)
class RankEnding:
    """The rank's relay is about to end its process, as an Expel ordered; its RankLost follows."""

    rank: int


@dataclass(frozen=True)
class RankLost:
    """The rank's socket at its relay closed; `said_goodbye`: it had sent Leaving before."""

    rank: int
    said_goodbye: bool
    interrupted: int | None = None  # the `direct` round that cannot come to an end without it


@dataclass(frozen=True)
class RelayLost:
    """The connection to a host's relay is gone.

    `interrupted` is the round that must be started again without that host (its attempt is aborted, nothing was
    applied); None when no round hangs on it.
    """

    host: str
    why: str
    interrupted: int | None = None


@dataclass(frozen=True)
class RoundDone:
    """Attempt `attempt` of round `round` is decided: nothing that is lost from now on can take a deposit out of its
    average.
    """

    round: int
    attempt: int
    ms: float = 0.0
    bytes_moved: int = 0


@dataclass(frozen=True)
class StateWhole:
    """All of what `rank` ships beside the checkpoint of `round` is in the transport's hands."""

    rank: int
    round: int


@dataclass(frozen=True)
class Taken:
    """Connection `number` is in the hub's hands, whatever becomes of it."""

    number: int


@dataclass(frozen=True)
class Met:
    """A rank talks to the run's store; told once."""


TransportEvent = RelayJoined | FromRank | RankEnding | RankLost | RelayLost | RoundDone | StateWhole | Taken | Met

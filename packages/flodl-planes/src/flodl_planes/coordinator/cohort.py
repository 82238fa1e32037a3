"""The ranks of the frozen world: who has loaded, who trains, who fell silent, who is dead, and how many deaths are
too many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flodl_wire.faults import Broken, Fault
from flodl_wire.plane_messages import Gpu, RankHello
from flodl_wire.specs import RankPlace

ABSENT, READY, SILENT, DEAD, LEFT = "absent", "ready", "silent", "dead", "left"


@dataclass
class Member:
    """One rank. `silent` is the short time between its connection's end and the launcher's word on why it ended."""

    place: RankPlace
    state: str = ABSENT
    hello: RankHello | None = None
    silent_since: float = 0.0
    why: str = ""


class Cohort:
    """All ranks, living and dead; membership only shrinks."""

    def __init__(self, places: list[RankPlace]) -> None:
        self.members = {place.rank: Member(place) for place in sorted(places, key=lambda place: place.rank)}
        self.hosts = list(dict.fromkeys(member.place.host for member in self.members.values()))
        self.lost_hosts: set[str] = set()

    def __getitem__(self, rank: int) -> Member:
        return self.members[rank]

    def __contains__(self, rank: int) -> bool:
        return rank in self.members

    @property
    def size(self) -> int:
        return len(self.members)

    def ranks(self, *states: str) -> list[int]:
        """Ranks in one of `states`, in order."""
        return [rank for rank, member in self.members.items() if member.state in states]

    @property
    def living(self) -> list[int]:
        return self.ranks(READY)

    @property
    def hellos(self) -> dict[int, RankHello]:
        return {rank: member.hello for rank, member in self.members.items() if member.hello is not None}

    @property
    def gpus(self) -> dict[int, Gpu | None]:
        """Of each living rank, in order."""
        return {rank: hello.gpu for rank, hello in self.hellos.items() if self.members[rank].state == READY}

    def live_hosts(self) -> list[str]:
        """Hosts, in order, whose relay is there and serves a living rank; a relay whose last rank is gone ends
        itself.
        """
        keep = {self.members[rank].place.host for rank in self.living}
        return [host for host in self.hosts if host in keep and host not in self.lost_hosts]

    def where(self, rank: int) -> str:
        """``rank 3 on node-b``, for sentences."""
        return f"rank {rank} on {self.members[rank].place.host}"

    def ranks_of(self, host: str) -> list[int]:
        return [rank for rank, member in self.members.items() if member.place.host == host]

    @property
    def losses(self) -> str:
        """Who is dead and why, in a sentence's words; "" for nobody."""
        return "; ".join(f"{self.where(rank)}: {self.members[rank].why}" for rank in self.ranks(DEAD))

    def intolerable(self, max_failure: int | float | None, direct: bool = False) -> Fault | None:
        """The fault when more ranks are dead than the run accepts: none left, `max_failure` of them (a share below 1 is
        of the world), or, where ranks move tensors among themselves (`direct`), all but one (reference §5.6).
        """
        dead = self.ranks(DEAD)
        if not dead:
            return None
        who = self.losses
        if not self.ranks(READY, SILENT, LEFT):
            return Broken("all-lost", "cannot go on training: every rank is lost", who)
        limit = self.limit(max_failure)
        if limit is not None and len(dead) >= limit:
            return Broken(
                "below-tolerance",
                "cannot go on training: the cohort is below tolerance",
                f"{len(dead)} of {self.size} ranks lost, max_failure is {max_failure} ({who})",
                "raise Trainer(max_failure=…), or leave it out to go on while one rank lives",
            )
        if direct and len(self.ranks(READY, SILENT, LEFT)) < 2:
            return Broken(
                "single-survivor",
                "cannot go on training: one rank is left, and there is nobody to average with",
                who,
                "start again; in cpu_cadence a run goes on while one rank lives",
            )
        return None

    def limit(self, max_failure: int | float | None) -> int | None:
        """How many dead ranks end the run."""
        if max_failure is None:
            return None
        if isinstance(max_failure, float):
            return max(1, math.ceil(min(max(max_failure, 0.0), 1.0) * self.size))
        return max(1, max_failure)

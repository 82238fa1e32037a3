"""What happens in a play, drawn from a seed, and what must follow from it. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

VICTIMS = ("rank", "rank", "rank", "relay", "agent", "keeper", "hub", "launcher", "fanout")
WEIGHTS = {"kill": 8, "stop": 4, "disk": 2, "cut": 1}
LATEST = 1.15  # moment
AFTERWARDS = (2, 3, 4)  # ranks of the run that goes on


@dataclass(frozen=True)
class Deed:
    """`moment`: when so much of the samples has been delivered; what is above 1 are seconds after the last of them, in
    which everybody leaves. `ranks_after`: of the run that goes on, if one has to.
    """

    number: int
    kind: str
    victim: str
    moment: float
    ranks_after: int

    def __str__(self) -> str:
        when = f"at {self.moment:.0%}" if self.moment < 1 else f"{self.moment - 1:.2f} s after all"
        return f"{self.kind} {self.victim} {when}"


@dataclass(frozen=True)
class Expected:
    """`verdicts`: done, failed, or killed (nobody was left to say one). `words`: one of them stands in a failed run's
    first cause. `bound`: seconds until nothing is left, of which a busy box may use more than a quiet one.
    """

    verdicts: tuple[str, ...]
    words: tuple[str, ...] = ()
    bound: float = 20.0


# A run may be over before the deed reaches it: then it is done, whoever the victim is.
KILLED = {
    "rank": Expected(("done",)),  # while one rank lives training goes on
    "relay": Expected(("failed", "done"), ("relay",)),
    "agent": Expected(("failed", "done"), ("agent", "lost")),
    "keeper": Expected(("failed", "done"), ("keeper",)),
    "hub": Expected(("failed", "done"), ("coordinator",)),
    "launcher": Expected(("killed", "done")),
    "fanout": Expected(("failed", "done"), ("fan-out", "fanout")),
}
STOPPED = {
    "rank": Expected(("done",), bound=40.0),  # stall_timeout ends it
    "relay": Expected(("failed", "done"), ("relay", "lost"), 40.0),
    "agent": Expected(("failed", "done"), ("agent", "lost"), 40.0),
    "keeper": Expected(("failed", "done"), ("keeper",), 40.0),
    "hub": Expected(("failed", "done"), ("hub", "coordinator", "relay"), 40.0),
    "launcher": Expected(("failed", "done"), bound=40.0),
    "fanout": Expected(("failed", "done"), ("fan-out", "fanout", "lost", "agent"), 40.0),
}


def expected(deed: Deed) -> Expected:
    if deed.kind == "kill":
        return KILLED[deed.victim]
    if deed.kind == "stop":
        return STOPPED[deed.victim]
    if deed.kind == "disk":  # the last checkpoint is the run's result: without it there is none
        return Expected(("done", "failed"), ("No space left", "cannot write"))
    return Expected(("done",), bound=40.0)  # a host behind a cut cable is lost; the others go on


def draw(seed: int, number: int, *, lab: bool) -> Deed:
    """The deed of play `number`."""
    dice = random.Random(f"{seed}/{number}")
    kinds = [kind for kind in WEIGHTS if lab or kind != "cut"]
    (kind,) = dice.choices(kinds, [WEIGHTS[kind] for kind in kinds])
    victim = {"disk": "runs/", "cut": dice.choice(("tower", "attic"))}.get(kind) or dice.choice(VICTIMS)
    return Deed(number, kind, victim, dice.uniform(0.0, LATEST), dice.choice(AFTERWARDS))

"""What happens in a play, drawn from a seed, and what must follow from it. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

MODES = ("cpu_cadence", "cpu_cadence", "cpu_cadence", "cpu_sync", "cpu_async", "nccl_sync", "nccl_cadence")
DIRECT = ("nccl_sync", "nccl_cadence")  # the tensors go from rank to rank; two of them must be left
VICTIMS = ("rank", "rank", "rank", "relay", "agent", "keeper", "hub", "launcher", "fanout")
STOP_VICTIMS = (*VICTIMS, "trained rank", "agent+fanout", "whole host")
ROLES = {  # of those that are not one process
    "trained rank": ("rank",),
    "agent+fanout": ("fanout", "agent"),
    "whole host": ("fanout", "keeper", "agent"),  # nobody is left there who would end the rest
}
LINGER = 0.6  # seconds of work of their own that ranks do behind the training
WEIGHTS = {"kill": 8, "stop": 4, "disk": 2, "cut": 1}
EARLY = 0.08  # of all moments are among the first second, in which models are handed out and collectives met
LATEST = 1.15  # moment
AFTERWARDS = (2, 3, 4)  # ranks of the run that goes on


@dataclass(frozen=True)
class Deed:
    """`moment`: when so much of the samples has been delivered; what is above 1 are seconds after the last of them, in
    which everybody leaves; what is below 0 are those since training has begun. `ranks_after`: of the run that goes on,
    if one has to.
    """

    number: int
    mode: str
    kind: str
    victim: str
    moment: float
    ranks_after: int

    def __str__(self) -> str:
        when = f"at {self.moment:.0%}" if self.moment < 1 else f"{self.moment - 1:.2f} s after all"
        if self.moment < 0:
            when = f"{-self.moment:.2f} s in"
        return f"{self.mode}: {self.kind} {self.victim} {when}"


@dataclass(frozen=True)
class Expected:
    """`verdicts`: done, failed, or killed (nobody was left to say one). `words`: one of them stands in a failed run's
    first cause, one of `told` in the verdict of a done one whose victim was stopped. `bound`: seconds until nothing is
    left, of which a busy box may use more than a quiet one.
    """

    verdicts: tuple[str, ...]
    words: tuple[str, ...] = ()
    bound: float = 20.0
    told: tuple[str, ...] = ()


# A run may be over before the deed reaches it: then it is done, whoever the victim is.
KILLED = {
    "rank": Expected(("done",)),  # while one rank lives training goes on
    "relay": Expected(("failed", "done"), ("relay",)),
    "agent": Expected(("failed", "done"), ("agent", "lost")),
    "keeper": Expected(("failed", "done"), ("keeper",)),
    "hub": Expected(("failed", "done"), ("coordinator",)),
    "launcher": Expected(("killed", "done")),
    "fanout": Expected(("failed", "done"), ("fan-out", "fanout")),
    "store": Expected(("failed", "done"), ("store",)),
}
ENDED = ("lost on the way", "stood still", "never exited")
STOPPED = {
    "rank": Expected(("done",), bound=40.0, told=ENDED),  # stall_timeout ends it
    "trained rank": Expected(("done",), bound=40.0, told=ENDED),  # its keeper does, unless it was caught before
    "relay": Expected(("failed", "done"), ("relay", "lost"), 40.0),
    "agent": Expected(("failed", "done"), ("agent", "lost"), 40.0),
    "keeper": Expected(("failed", "done"), ("keeper",), 40.0),
    "hub": Expected(("failed", "done"), ("hub", "coordinator", "relay"), 40.0),
    "launcher": Expected(("failed", "done"), bound=40.0),
    "fanout": Expected(("failed", "done"), ("fan-out", "fanout", "lost", "agent"), 40.0),
    "agent+fanout": Expected(("failed", "done"), ("agent", "lost"), 40.0),
    "whole host": Expected(("failed", "done"), ("no sign of life",), 40.0),
}


def expected(deed: Deed) -> Expected:
    if deed.kind == "kill":
        return KILLED[deed.victim]
    if deed.kind == "stop":
        return STOPPED[deed.victim]
    if deed.kind == "disk":  # the last checkpoint is the run's result: without it there is none
        return Expected(("done", "failed"), ("No space left", "cannot write"))
    if deed.mode in DIRECT and deed.victim == "tower":  # it has two of the three ranks
        return Expected(("failed", "done"), ("tower",), 40.0)
    return Expected(("done",), bound=40.0)  # a host behind a cut cable is lost; the others go on


def draw(seed: int, number: int, *, lab: bool) -> Deed:
    """The deed of play `number`."""
    dice = random.Random(f"{seed}/{number}")
    mode = dice.choice(MODES)
    kinds = [kind for kind in WEIGHTS if lab or kind != "cut"]
    (kind,) = dice.choices(kinds, [WEIGHTS[kind] for kind in kinds])
    processes = STOP_VICTIMS if kind == "stop" else VICTIMS
    if kind == "kill" and mode in DIRECT:
        processes = (*processes, "store")
    victim = {"disk": "runs/", "cut": dice.choice(("tower", "attic"))}.get(kind) or dice.choice(processes)
    early = dice.random() < EARLY
    moment = dice.uniform(-1.0, 0.0) if early else dice.uniform(0.0, LATEST)
    if victim == "trained rank":
        moment = dice.uniform(1.0, 1.0 + LINGER)
    return Deed(number, mode, kind, victim, moment, dice.choice(AFTERWARDS))

"""The life of a run, as one complete table.

A run is in exactly one phase, and the phase is the word ``fdl status`` prints:

``waiting``
    The window is open and takes hosts in. Nobody waits for anything but the clock and the roster. What may come: the
    hold (``staging``), the formation, or the hard cap with too few ranks.
``staging``
    Only under ``start: manual`` and ``hybrid``. Quorum is met and the roster is held for the operator: walk-ins are
    still admitted, and in ``manual`` the clock no longer closes the window; only the operator or the hard cap does.
    When a member leaves and quorum is lost the run is ``waiting`` again.
``forming``
    The world is frozen: ranks are numbered, every host has been told, relays dial in and ranks load. Everybody waits
    for the slowest rank. Any loss is final here, because nobody has trained yet and starting again costs nothing.
``training``
    The first batches are out. Losses are weighed against the tolerance the script asked for.
``done``, ``failed``
    The verdict. It never changes; the state is served a little longer so that a poller sees it.

A *step* is what moves a run on. Every pair of phase and step has a cell: where it leads and why people would say so,
or the reason why that step is refused in that phase. No cell is missing, so no step is ever silently ignored. The
diagram in docs/phases.md is drawn from this table (``python -m flodl_window.phases``), and a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flodl_wire.faults import Refused


class Phase(str, Enum):
    WAITING = "waiting"
    STAGING = "staging"
    FORMING = "forming"
    TRAINING = "training"
    DONE = "done"
    FAILED = "failed"

    @property
    def window_open(self) -> bool:
        """True while hosts are still admitted."""
        return self in (Phase.WAITING, Phase.STAGING)

    @property
    def terminal(self) -> bool:
        return self in (Phase.DONE, Phase.FAILED)


class Step(str, Enum):
    """What moves a run from one phase to the next, named as facts."""

    QUORUM_HELD = "quorum held"  # quorum is met and the start mode has a switch
    QUORUM_LOST = "quorum lost"  # a member left the hold
    FORMED = "formed"  # target, expiry with quorum, or the operator
    CAP_REACHED = "cap reached"  # the hard cap, without a world
    BESIEGED = "besieged"  # too many different hellos had to be refused
    BEGAN = "began"  # the coordinator hands out the first batches
    ENDED = "ended"  # every host's link has closed and nothing is owed
    LOST = "lost"  # something broke that the run cannot go on without
    STOPPED = "stopped"  # the operator interrupted it


@dataclass(frozen=True)
class To:
    """A cell that leads on; `label` is the edge's text in the diagram."""

    phase: Phase
    label: str


@dataclass(frozen=True)
class No:
    """A cell that refuses, with the reason a person would be given."""

    why: str


_OVER = No("the run is over")
_UNHELD = No("nothing is held: that is a matter of the staging phase")
_CLOSED = No("the window is closed and the world is frozen")
_UNFORMED = No("the world has not formed yet")

TABLE: dict[Phase, dict[Step, To | No]] = {
    Phase.WAITING: {
        Step.QUORUM_HELD: To(Phase.STAGING, "manual / hybrid: quorum met"),
        Step.QUORUM_LOST: _UNHELD,
        Step.FORMED: To(Phase.FORMING, "auto / hybrid: target, or expiry with quorum"),
        Step.CAP_REACHED: To(Phase.FAILED, "hard cap: quorum never met"),
        Step.BESIEGED: To(Phase.FAILED, "more than 1024 different hellos refused"),
        Step.BEGAN: _UNFORMED,
        Step.ENDED: _UNFORMED,
        Step.LOST: To(Phase.FAILED, "a host that should come cannot"),
        Step.STOPPED: To(Phase.FAILED, "interrupted"),
    },
    Phase.STAGING: {
        Step.QUORUM_HELD: No("the roster is held already"),
        Step.QUORUM_LOST: To(Phase.WAITING, "a member left: quorum lost"),
        Step.FORMED: To(Phase.FORMING, "fdl start; hybrid: target or expiry"),
        Step.CAP_REACHED: To(Phase.FAILED, "hard cap: start never fired"),
        Step.BESIEGED: To(Phase.FAILED, "more than 1024 different hellos refused"),
        Step.BEGAN: _UNFORMED,
        Step.ENDED: _UNFORMED,
        Step.LOST: To(Phase.FAILED, "a host that should come cannot"),
        Step.STOPPED: To(Phase.FAILED, "interrupted"),
    },
    Phase.FORMING: {
        Step.QUORUM_HELD: _CLOSED,
        Step.QUORUM_LOST: _CLOSED,
        Step.FORMED: No("the world has formed already"),
        Step.CAP_REACHED: _CLOSED,
        Step.BESIEGED: _CLOSED,
        Step.BEGAN: To(Phase.TRAINING, "relays dialled in, every rank ready"),
        Step.ENDED: To(Phase.DONE, "every rank exited 0 without averaging"),
        Step.LOST: To(Phase.FAILED, "any loss before training"),
        Step.STOPPED: To(Phase.FAILED, "interrupted"),
    },
    Phase.TRAINING: {
        Step.QUORUM_HELD: _CLOSED,
        Step.QUORUM_LOST: _CLOSED,
        Step.FORMED: _CLOSED,
        Step.CAP_REACHED: _CLOSED,
        Step.BESIEGED: _CLOSED,
        Step.BEGAN: No("training has begun already"),
        Step.ENDED: To(Phase.DONE, "every host link closed"),
        Step.LOST: To(Phase.FAILED, "coordinator lost / cohort below tolerance"),
        Step.STOPPED: To(Phase.FAILED, "interrupted"),
    },
    Phase.DONE: dict.fromkeys(Step, _OVER),
    Phase.FAILED: dict.fromkeys(Step, _OVER),
}

FIRST = Phase.WAITING


def after(phase: Phase, step: Step) -> Phase:
    """The phase `step` leads to. Raises Refused with the cell's reason where it leads nowhere."""
    cell = TABLE[phase][step]
    if isinstance(cell, No):
        raise Refused("wrong-phase", f"cannot take the step {step.value!r} while {phase.value}", cell.why)
    return cell.phase


def diagram() -> str:
    """The table as a mermaid state diagram, one line per edge, equal edges joined."""
    lines = ["stateDiagram-v2", f"    [*] --> {FIRST.value}: window opens"]
    for phase, row in TABLE.items():
        edges = [cell for cell in row.values() if isinstance(cell, To)]
        lines += [f"    {phase.value} --> {cell.phase.value}: {cell.label}" for cell in edges]
    lines += [f"    {phase.value} --> [*]" for phase in Phase if phase.terminal]
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram())

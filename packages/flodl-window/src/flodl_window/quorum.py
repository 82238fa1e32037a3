"""When the window closes, and what the operator's switch may do. Pure functions of knobs, ledger, clock and switch.

The order of `judge` is the reference's (§2.6) and is a promise: the operator first, then the target, then the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flodl_window.knobs import CAPACITY, Knobs
from flodl_window.ledger import Ledger
from flodl_window.phases import Phase, Step
from flodl_window.words import count, listed


@dataclass(frozen=True)
class Judgement:
    """What the window does now (None: stay), why, and what would mend a failure."""

    step: Step | None
    why: str
    fix: str = ""


@dataclass(frozen=True)
class Need:
    """A number of ranks; `exact` is False while a host of unknown size is still out."""

    ranks: int
    exact: bool

    def met(self, joined: int) -> bool:
        return self.exact and joined >= self.ranks


def need(wanted: int | Literal["capacity"], ledger: Ledger) -> Need:
    """`wanted` in ranks; "capacity" is what the roster gives as far as is known."""
    return Need(*ledger.capacity()) if wanted == CAPACITY else Need(wanted, True)


def judge(knobs: Knobs, ledger: Ledger, phase: Phase, elapsed: float, armed: bool) -> Judgement:
    """The window's next step, `elapsed` seconds after it opened; `armed`: the operator has fired the start."""
    joined, hosts = ledger.joined, len(ledger.members)
    quorum = need(knobs.quorum, ledger)
    met = quorum.met(joined)
    world = f"{count(joined, 'rank')} on {count(hosts, 'host')}"
    if armed and knobs.start != "auto" and met:
        return Judgement(Step.FORMED, f"the operator fired the start with {world}")
    if knobs.target is not None and knobs.start != "manual" and need(knobs.target, ledger).met(joined):
        return Judgement(Step.FORMED, f"{world}: as many as were waited for")
    if elapsed < knobs.join_s:
        return _stay(knobs, ledger, phase, quorum, met)
    if knobs.start != "manual" and met:
        return Judgement(Step.FORMED, f"the window closed after {knobs.join_s:g} s with {world}")
    if elapsed < knobs.cap_s:
        return _stay(knobs, ledger, phase, quorum, met)
    if knobs.start == "manual" and met:
        return Judgement(
            Step.CAP_REACHED,
            f"the start was not fired within {knobs.cap_s:g} s ({world} waited)",
            "fire it with fdl start, or give controller.join.max_join_timeout more seconds",
        )
    return Judgement(
        Step.CAP_REACHED,
        f"{_have(ledger, quorum)} when the window ended after {knobs.cap_s:g} s",
        "start the missing workers, lower controller.join.min_rank_start, or raise max_join_timeout",
    )


def _stay(knobs: Knobs, ledger: Ledger, phase: Phase, quorum: Need, met: bool) -> Judgement:
    held = knobs.start != "auto" and met
    if held:
        why = (
            f"{count(ledger.joined, 'rank')} in, quorum of {quorum.ranks} met: roster startable, fire with `fdl start`"
        )
        return Judgement(Step.QUORUM_HELD if phase is Phase.WAITING else None, why)
    return Judgement(Step.QUORUM_LOST if phase is Phase.STAGING else None, _have(ledger, quorum))


def _have(ledger: Ledger, quorum: Need) -> str:
    """ "have 1 rank, need 1 more (waiting for node-b)"."""
    short = quorum.ranks - ledger.joined
    if short > 0:
        text = f"have {count(ledger.joined, 'rank')}, need {short} more{'' if quorum.exact else ' or so'}"
    else:
        text = f"have {count(ledger.joined, 'rank')}, quorum of {quorum.ranks} met"
    missing = ledger.missing
    return f"{text} (waiting for {listed(missing)})" if missing else text


def answer_start(knobs: Knobs, ledger: Ledger, phase: Phase, trusted: bool) -> tuple[int, dict[str, object]]:
    """The answer to ``POST /start``: 200 arms the switch, anything else names its reason and is never queued
    (reference §2.8).
    """
    joined, quorum = ledger.joined, need(knobs.quorum, ledger)
    if knobs.start == "auto":
        return 409, {"error": "this run starts by itself (controller.join.start: auto); there is no switch to fire"}
    if not trusted:
        return 403, {
            "error": "not from this box and without the run's token: fire from the controller, or with --token"
        }
    if not phase.window_open:
        return 409, {"error": f"the window is closed: the run is {phase.value}"}
    if not quorum.met(joined):
        return 409, {"error": f"quorum is not met: {joined}/{quorum.ranks} ranks are in"}
    return 200, {"armed": True, "joined_ranks": joined, "min_rank_start": quorum.ranks}

"""Every host has left: is that the end, or is something still owed? Pure."""

from __future__ import annotations

from flodl_window import modes
from flodl_window.supervision import Supervision
from flodl_window.verdict import Incident, Surety
from flodl_window.words import listed, ranks_text


def judge(world: Supervision, mode: str, waited: float, last_word: float, now: float) -> str | Incident | None:
    """Why the run is done, or what was lost; None while the coordinator may still speak. `waited`: seconds since the
    last host left.
    """
    if world.finished:
        lost = [rank for loss in world.losses for rank in loss.ranks]
        degraded = f"; degraded: {ranks_text(lost)} lost on the way" if lost else ""
        afterwards = [incident.what for incident in world.afterwards]
        after = f"; after it: {listed(afterwards)}" if afterwards else ""
        return f"training finished, every host has left{degraded}{after}"
    if world.all_ranks_done and (mode == modes.TORCH or not world.began):
        return "every rank exited 0" + ("" if mode == modes.TORCH else " without averaging anything")
    if waited < last_word:
        return None
    if world.losses:
        return world.losses[0].incident
    return Incident(now, Surety.CAUSE, "every host has left and the coordinator has not reported an end")

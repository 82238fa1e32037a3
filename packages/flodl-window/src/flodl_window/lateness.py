"""What is late between the formation and the first batch. Every message names the box and what is missing there."""

from __future__ import annotations

from flodl_window import modes
from flodl_window.limits import Limits
from flodl_window.supervision import Supervision
from flodl_window.verdict import Incident, Surety
from flodl_window.words import listed, ranks_text


def overdue(world: Supervision, limits: Limits, waited: float, now: float) -> Incident | None:
    """The first deadline that has passed, `waited` seconds after the formation; None while all are in time."""
    if world.mode == modes.TORCH:
        return _unstarted(world, limits, now) if waited >= limits.formation else None
    if waited >= limits.formation and world.missing_relays():
        return _without_relay(world.missing_relays(), limits, now)
    if waited >= limits.ranks_ready and world.missing_ranks() and not world.on_their_own:
        return _not_ready(world, limits, now)
    return None


def _unstarted(world: Supervision, limits: Limits, now: float) -> Incident | None:
    late = [rank for rank in world.ranks.values() if not rank.started and not rank.ended]
    if not late:
        return None
    host = late[0].host
    here = [rank.rank for rank in late if rank.host == host]
    return Incident(now, Surety.CAUSE, f"{ranks_text(here)} on {host} not started within {limits.formation:g} s", host)


def _without_relay(hosts: list[str], limits: Limits, now: float) -> Incident:
    what = f"host {hosts[0]}: its relay has not dialled in within {limits.formation:g} s of the formation"
    why = f"also missing: {listed(hosts[1:])}" if hosts[1:] else ""
    return Incident(now, Surety.CAUSE, what, hosts[0], why=why, fix=f"look at the lines of {hosts[0]} above")


def _not_ready(world: Supervision, limits: Limits, now: float) -> Incident:
    late = world.missing_ranks()
    host = late[0].host
    here = [rank.rank for rank in late if rank.host == host]
    what = f"{ranks_text(here)} on {host} not ready within {limits.ranks_ready:g} s of the formation"
    elsewhere = sorted({rank.host for rank in late} - {host})
    why = "alive, but never reached the Trainer" + (f"; likewise on {listed(elsewhere)}" if elsewhere else "")
    fix = "does the command train with flodl? On a slow box raise FLODL_NET_TIMEOUT_SCALE"
    return Incident(now, Surety.CAUSE, what, host, here[0], why, fix)

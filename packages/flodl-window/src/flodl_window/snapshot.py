"""The run as ``state.json`` shows it at this moment. Countdowns are live, not those of the last change."""

from __future__ import annotations

from flodl_window.phases import Phase
from flodl_window.quorum import need
from flodl_window.run import Run
from flodl_wire.state import Member, RankState, State


def snapshot(run: Run, now: float) -> State:
    """What to serve now. Nothing secret is in it: no salt, no token, no command line."""
    knobs, ledger, charter = run.charter.knobs, run.ledger, run.charter
    quorum = need(knobs.quorum, ledger)
    target = None if knobs.target is None else need(knobs.target, ledger)
    left = cap = None
    if run.phase.window_open:
        left = round(max(0.0, run.opened + knobs.join_s - now), 1)
        cap = round(max(0.0, run.opened + knobs.cap_s - now), 1)
    return State(
        run=charter.run,
        phase=run.phase.value,
        why=run.why + _closing(run, left, cap),
        mode=charter.mode,
        joined_ranks=ledger.joined,
        joined_hosts=len(ledger.members),
        min_rank_start=quorum.ranks,
        target_ranks=None if target is None else target.ranks,
        window_remaining_secs=left,
        cap_remaining_secs=cap,
        start_mode=knobs.start,
        start_armed=run.window.armed,
        members=_members(run),
        ranks=_ranks(run),
        refused=run.window.refusals.listed(),
        missing=ledger.missing if run.phase.window_open else [],
        progress=run.progress,
        degraded=run.world is not None and run.world.degraded,
        cause=run.cause.cause() if run.phase is Phase.FAILED and run.cause is not None else None,
        instance=charter.instance,
        port=charter.controller_port,
    )


def _closing(run: Run, left: float | None, cap: float | None) -> str:
    """ "; closes in 212 s", or when it gives up; live, so it is no part of the run's own `why`."""
    if left is None or cap is None:
        return ""
    if left > 0 and run.charter.knobs.start != "manual":
        return f"; closes in {left:.0f} s"
    return f"; gives up in {cap:.0f} s"


def _members(run: Run) -> list[Member]:
    ranks = run.ledger.ranks()
    members = []
    for entry in run.ledger.in_rank_order():
        life = run.world.hosts.get(entry.host) if run.world is not None else None
        devices = ["cpu" if offer.kind == "cpu" else f"cuda:{offer.index}" for offer in entry.devices]
        members.append(
            Member(
                host=entry.host,
                ranks=ranks[entry.host],
                local_devices=devices,
                gpus=[offer.label or device for offer, device in zip(entry.devices, devices, strict=True)],
                libtorch=entry.libtorch,
                joined_at_secs=round(entry.joined_s, 3),
                road=entry.road,
                address=entry.address,
                status=life.status if life is not None else "in",
                why=life.why if life is not None else "",
                own_address=entry.hello.own_address,
                dialled=entry.hello.dialled,
                walk_in=run.ledger.named(entry.host) is None,
            )
        )
    return members


def _ranks(run: Run) -> list[RankState]:
    if run.world is None:
        return []
    return [RankState(life.rank, life.host, life.device, life.status, life.why) for life in run.world.ranks.values()]

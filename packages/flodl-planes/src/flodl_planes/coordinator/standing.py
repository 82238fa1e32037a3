"""Where a run stands, as the cursor of a checkpoint; and a run put back to where a cursor says."""

from __future__ import annotations

from typing import Any

import msgspec

from flodl_planes.coordinator.hub_events import HubOrder, Rescue
from flodl_planes.coordinator.training import Training
from flodl_planes.elche import snapshot
from flodl_planes.records.cursor import Cursor

REASONS = {  # of a run that failed: the fault's code → the reference's save reasons (§5.6)
    "stopped": "graceful_shutdown",
    "below-tolerance": "max_failure_exceeded",
    "single-survivor": "single_survivor",
    "all-lost": "all_ranks_lost",
    "round-stalled": "reduce_stall",
}


def cursor(training: Training, run: str, mode: str, reason: str) -> Cursor:
    """With the average of the last round that was decided."""
    terms, cohort, accounts = training.terms, training.cohort, training.accounts
    hello = cohort.hellos[min(cohort.hellos)]
    cadence = getattr(training.dealer, "cadence", None)
    carried, tally = accounts.carried, accounts.epoch
    return Cursor(
        run=run,
        mode=mode,
        reason=reason,
        epoch=training.merged_epochs,
        epochs=terms.epochs,
        merged=[list(span) for span in training.ledger.spans()],
        skipped=[list(span) for span in training.ledger.skipped],
        seed=terms.seed,
        dataset=terms.dataset,
        batch_size=terms.batch_size,
        rounds=training.rounds_before + training.decided_round,
        world_size=cohort.size,
        model_sig=hello.model_sig,
        elche=snapshot.take(cadence, places(training)) if cadence is not None else {},
        terms=msgspec.to_builtins(terms),
        history=list(accounts.epochs),
        loss_sum=carried.loss_sum + tally.loss_sum,
        loss_samples=carried.loss_samples + tally.loss_samples,
        wall_s=round(carried.wall_s + tally.wall_s, 6),
    )


def rescue(training: Training, run: str, mode: str, code: str) -> list[HubOrder]:
    """A run fails with a fault of that code: its last average is worth keeping, unless it is on the disk already or is
    none.
    """
    if training.saving.settled or training.decided_round <= training.saving.saved:
        return []
    reason = REASONS.get(code, "run_failed")
    return [Rescue(cursor(training, run, mode, reason), training.decided_round)]


def restore(training: Training, found: Cursor) -> None:
    """Before the first round. Another world size is welcome: the cadence takes what it knows of the same places."""
    training.stand_at(found)
    cadence: Any = getattr(training.dealer, "cadence", None)
    if cadence is not None:
        snapshot.restore(cadence, found.elche, places(training))


def places(training: Training) -> dict[int, str]:
    """Rank → the device it has, in words that mean the same in another run."""
    members = training.cohort.members.items()
    return {rank: f"{member.place.host}/{member.place.local_rank}/{member.place.device}" for rank, member in members}

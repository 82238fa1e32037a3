"""The hub's lines for people, and its live numbers."""

from __future__ import annotations

from math import prod
from typing import Any

from flodl_planes.coordinator.accounting import Accounts, Tally
from flodl_planes.coordinator.cohort import Cohort
from flodl_planes.coordinator.pool import Span
from flodl_planes.coordinator.training import Training
from flodl_wire.hub_messages import EpochDone, Progress, RankProgress
from flodl_wire.plane_messages import RankHello, Terms
from flodl_wire.result import EpochResult

STALLED_AFTER_S = 10.0  # a rank is called stalled after this, or after ten times what its plan should take
STALLED_TIMES = 10.0


def began_line(terms: Terms, cohort: Cohort, hello: RankHello) -> str:
    """``cpu_cadence on 3 ranks: 1,437 samples, 12 epochs of 45 batches, 61,706 parameters; int8 between boxes``."""
    parameters = sum(prod(tensor.shape) for tensor in hello.tensors if tensor.kind == "param")
    batches = -(-terms.dataset // terms.batch_size)
    over = " over gloo (the ranks run on the processor)" if hello.collective == "gloo" else ""
    return (
        f"{terms.mode}{over} on {_count(cohort.size, 'rank')}: {_count(terms.dataset, 'sample')}, "
        f"{_count(terms.epochs, 'epoch')} of {_count(batches, 'batch', 'batches')}, {_count(parameters, 'parameter')}"
        + _averaging(terms, len(cohort.live_hosts()))
    )


def _averaging(terms: Terms, hosts: int) -> str:
    """What is unusual about the averages."""
    parts = []
    if terms.wire != "float32":
        nothing = f"one box, so nothing is sent as {terms.wire}: averages are exact"
        parts.append(f"{terms.wire} between boxes" if hosts > 1 else nothing)
    if terms.outer:
        parts.append("{kind} over the averages (lr {lr:g}, momentum {momentum:g})".format(**terms.outer))
    return "".join(f"; {part}" for part in parts)


def epoch_line(result: EpochResult, epochs: int, tally: Tally) -> str:
    """``epoch 3/12  loss 0.142  accuracy 0.957  1,840 samples/s  balance 0.91  sync 0.03``."""
    parts = [f"epoch {result.epoch + 1}/{epochs}"]
    if result.loss is not None:
        parts.append(f"loss {result.loss:.3f}")
    parts += [f"{name} {value:.3f}" for name, value in result.figures().items()]
    parts.append(f"{tally.rate:,.0f} samples/s")
    if tally.balance is not None:
        parts.append(f"balance {tally.balance:.2f}")
    if tally.sync_share is not None:
        parts.append(f"sync {tally.sync_share:.2f}")
    return "  ".join(parts)


def epoch_done(result: EpochResult, tally: Tally, line: str) -> EpochDone:
    """The epoch as the launcher hears of it."""
    return EpochDone(
        result.epoch,
        line,
        loss=result.loss,
        wall_s=result.wall_s,
        samples=result.samples,
        samples_per_s=round(tally.rate, 3),
        balance=_short(tally.balance),
        sync_share=_short(tally.sync_share),
        eval=result.eval or {},
    )


def epoch_row(result: EpochResult, spans: list[Span], tally: Tally, at: float) -> dict[str, Any]:
    """The epoch's line of metrics.jsonl; `merged` is the ledger's proof: one span from 0 to the dataset's end."""
    return {
        "kind": "epoch",
        "t": round(at, 3),
        "epoch": result.epoch,
        "loss": result.loss,
        "wall_s": result.wall_s,
        "samples": result.samples,
        "eval": result.eval,
        "samples_per_s": round(tally.rate, 3),
        "balance": _short(tally.balance),
        "sync_share": _short(tally.sync_share),
        "merged": [list(span) for span in spans],
        "ranks": [
            {
                "rank": rank,
                "batches": work.batches,
                "samples": work.samples,
                "busy_s": round(work.busy_ms / 1e3, 6),
                "wait_s": round(work.wait_ms / 1e3, 6),
            }
            for rank, work in sorted(tally.work.items())
        ],
    }


def round_row(training: Training, accounts: Accounts, at: float) -> dict[str, Any]:
    """A round's line of metrics.jsonl; `sync_ms`: what the average before it cost the rank that it cost most."""
    return {
        "kind": "round",
        "t": round(at, 3),
        "epoch": training.merged_epochs,
        "rounds": accounts.rounds,
        "merged": training.ledger.merged,
        "loss": accounts.epoch.loss,
        "samples_per_s": round(accounts.recent_rate, 3),
        "anchor": training.dealer.anchor_rank,
        "batches": {str(rank): batches for rank, (batches, _) in sorted(accounts.round.items())},
        "ms": {
            str(rank): round((deposit.compute_ms + deposit.data_ms) / batches, 3)
            for rank, (batches, deposit) in sorted(accounts.round.items())
            if batches
        },
        "sync_ms": round(max((deposit.sync_ms for _, deposit in accounts.round.values()), default=0.0), 3),
    }


def progress(training: Training, accounts: Accounts, now: float) -> Progress:
    """Live numbers for the bar and state.json."""
    tally = accounts.epoch if accounts.epoch.samples else accounts.run
    terms = training.terms
    anchor = training.dealer.anchor_rank
    return Progress(
        epoch=min(training.merged_epochs, terms.epochs - 1),
        epochs=terms.epochs,
        samples=terms.dataset if training.final else training.ledger.merged,
        dataset=terms.dataset,
        samples_per_s=round(accounts.recent_rate, 3),
        loss=tally.loss,
        balance=_short(tally.balance),
        sync_share=_short(tally.sync_share),
        anchor=anchor,
        anchor_host="" if anchor is None else training.cohort[anchor].place.host,
        rounds=accounts.rounds,
        ranks=[
            RankProgress(
                rank,
                round(accounts.rank_rate(rank), 3),
                accounts.run.work[rank].batches if rank in accounts.run.work else 0,
                stalled=rank in accounts.run.work and stalled(training, rank, now),
                first_batch_s=first_batch(training, rank, now),
            )
            for rank in training.cohort.living
        ],
    )


def first_batch(training: Training, rank: int, now: float) -> float:
    """For how long a rank has been in its first batch, once that is long: compilers and autotuners take their minutes
    there, and nothing says yet what it should take. 0 otherwise.
    """
    first = rank not in training.accounts.run.work and stalled(training, rank, now)
    return round(now - training.issued_at, 1) if first else 0.0


def stalled(training: Training, rank: int, now: float, least_s: float = STALLED_AFTER_S) -> bool:
    """Whether a rank should have done its plan long ago, `least_s` at least."""
    if rank not in training.plans or rank in training.deposits or training.open is not None:
        return False
    rate = training.accounts.rank_rate(rank)
    planned = sum(count for _, count in training.plans[rank].spans)
    expected = planned / rate if rate > 0 else 0.0
    return now - training.issued_at > max(least_s, STALLED_TIMES * expected)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"

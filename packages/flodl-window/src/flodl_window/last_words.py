"""What the launcher says at the end: the cause with its last lines, or the figures; what result.json holds. Pure."""

from __future__ import annotations

import contextlib
from pathlib import Path

from flodl_window.phases import Phase
from flodl_window.run import Run
from flodl_window.words import count
from flodl_wire import exits
from flodl_wire.result import RunResult

TAIL = 12  # lines; `fdl why` has fifty of every rank


def of(machine: Run, result: RunResult, folder: Path) -> list[str]:
    """The lines, for stderr."""
    lines: list[str] = []
    failed = machine.phase is Phase.FAILED and machine.cause is not None
    if failed and machine.cause is not None:
        cause = machine.cause
        where = f"{cause.host}:{cause.rank}" if cause.rank is not None else cause.host or "hub"
        lines += [f"  {where} | {line}" for line in cause.tail[-TAIL:]]
        lines.append(f"FAILED: {machine.why}")
        if cause.fix:
            lines.append(f"fix: {cause.fix}")
    else:
        lines.append(f"{'DONE, DEGRADED' if result.degraded else 'done'}: {machine.why}")
        if result.samples:
            lines.append(figures(result))
    lines.append(f"files: {short(folder)}")
    if failed and machine.exit_code != exits.INTERRUPTED:
        lines.append(f"more: fdl why {result.run}")
    return lines


def result_of(machine: Run) -> RunResult:
    """What the run came to, with its verdict; a run that never got to figures has none."""
    size = len(machine.world.ranks) if machine.world is not None else machine.ledger.joined
    result = machine.result or RunResult(machine.charter.run, machine.charter.mode, size)
    result.verdict = machine.phase.value
    result.why = machine.why
    result.degraded = machine.world is not None and machine.world.degraded
    return result


def figures(result: RunResult) -> str:
    """One line: "5 epochs, 9000 samples in 12.1 s; 743 samples/s; balance 0.97; accuracy 0.96". Of a run that went on
    from a checkpoint: "5 epochs in all, 9000 samples; 4000 of them by this run in 5.4 s; …".
    """
    epochs, whole = count(len(result.epochs), "epoch"), sum(epoch.samples for epoch in result.epochs)
    if result.resumed and whole >= result.samples:
        parts = [f"{epochs} in all, {whole} samples", f"{result.samples} of them by this run in {result.wall_s:.1f} s"]
    else:
        parts = [f"{epochs}, {result.samples} samples in {result.wall_s:.1f} s"]
    if result.undone:
        parts.append(f"{result.undone} of them left out, their work was not finite")
    parts.append(f"{result.samples_per_s:.0f} samples/s")
    if result.balance is not None:
        parts.append(f"balance {result.balance:.2f}")
    evaluated = [epoch.eval for epoch in result.epochs if epoch.eval]
    if evaluated:
        parts += [f"{name} {value:.4g}" for name, value in evaluated[-1].items()]
    return "; ".join(parts)


def short(path: Path) -> str:
    """`path` from here when it lies below."""
    with contextlib.suppress(ValueError):
        return f"{path.relative_to(Path.cwd())}/"
    return f"{path}/"

"""A script run alone: one window per epoch, no averaging, and the run's folder written here.

The same permutation, seeds and batches as a world of one has, so the numbers are the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flodl_planes.rank.bar import Bar
from flodl_planes.rank.schema import slots_of
from flodl_planes.rank.terms import ALONE_MODE
from flodl_planes.rank.windows import PlanSeen
from flodl_planes.records.run_folder import RunFolder
from flodl_planes.role.place import LocalCluster
from flodl_wire.faults import Fault
from flodl_wire.hub_messages import Progress, RankProgress
from flodl_wire.plane_messages import Deposit, EvalDone, Plan, Terms
from flodl_wire.result import EpochResult, RankResult, RunResult
from flodl_wire.state import Cause, Member, RankState, State

if TYPE_CHECKING:
    import torch

STATE_EVERY = 2.0  # seconds between two writes of state.json while an epoch runs


class SoloWindows:
    """The windows of a run that has one rank and no hub."""

    def __init__(
        self, terms: Terms, place: LocalCluster, folder: RunFolder | None = None, bar: Bar | None = None
    ) -> None:
        self.result: RunResult | None = None
        self._terms = terms
        self._place = place
        self._folder = folder or RunFolder()
        self._bar = bar or Bar()
        self._rank = RankResult(
            0, place.host, place.device, batches=0, samples=0, busy_s=0.0, wait_s=0.0, samples_per_s=0.0
        )
        self._troubled = False  # and it was said
        self._run = RunResult(run=self._folder.id, mode=terms.mode, world_size=1, ranks=[self._rank])
        self._done = 0  # samples of this epoch
        self._epoch_began = self._began = self._last = time.perf_counter()
        self._state_due = 0.0
        self._over = False

    def open(self, model: torch.nn.Module, on_plan: PlanSeen) -> Plan | None:
        self._model = model
        self._on_plan = on_plan
        slots = slots_of(model)  # also refuses here what a world would refuse: the script is the same
        parameters = sum(slot.tensor.numel() for slot in slots if slot.kind == "param")
        terms = self._terms
        self._bar.line(
            f"flodl: training alone on {self._place.device}: {terms.dataset} samples, "
            f"{terms.epochs} epoch{'s' if terms.epochs > 1 else ''}, {parameters:,} parameters; "
            f"files in {self._folder.path}"
        )
        if self._folder.note:
            self._bar.line(f"flodl: {self._folder.note}")
        self._write_state("training", "training alone")
        self._epoch_began = self._began = self._last = time.perf_counter()
        return self._plan(0, evaluate=None)

    def tick(self, samples: int) -> None:
        self._done += samples
        self._last = now = time.perf_counter()
        rate = self._done / max(1e-9, now - self._epoch_began)
        self._bar.show(len(self._run.epochs), self._terms.epochs, self._done, self._terms.dataset, rate)
        if now > self._state_due:
            self._state_due = now + STATE_EVERY
            self._write_state("training", "training alone", self._progress(rate))

    def report(self, deposit: Deposit) -> Plan | None:
        run, terms = self._run, self._terms
        if deposit.samples:
            self._count(deposit)
            epoch = len(run.epochs) - 1
            last = epoch + 1 == terms.epochs
            if not terms.evaluates:
                self._close_epoch()
            if not last:
                return self._plan(epoch + 1, evaluate=epoch if terms.evaluates else None)
            if terms.evaluates:
                return Plan(window=terms.epochs, epoch=epoch, spans=[], evaluate=epoch, epoch_ends=True)
        self._finish()
        return None

    def evaluated(self, done: EvalDone) -> None:
        self._run.epochs[done.epoch].eval = done.metrics
        self._close_epoch()

    def fail(self, error: BaseException) -> None:
        if self._over:
            return
        self._over = True
        run = self._run
        run.verdict, run.why = "failed", "interrupted" if isinstance(error, KeyboardInterrupt) else _words(error)
        self._rank.samples += self._done  # of the epoch that was not to be finished
        self._figures()
        self._bar.close()
        self._folder.write_result(run)
        self._write_state("failed", run.why, cause=Cause(what=run.why, host=self._place.host, rank=0))

    def close(self) -> None:
        self._bar.close()

    def _plan(self, epoch: int, evaluate: int | None) -> Plan:
        plan = Plan(window=epoch, epoch=epoch, spans=[[0, self._terms.dataset]], evaluate=evaluate, epoch_ends=True)
        self._on_plan(plan)
        return plan

    def _count(self, deposit: Deposit) -> None:
        """An epoch's samples are through."""
        rank, busy = self._rank, (deposit.compute_ms + deposit.data_ms) / 1e3
        rank.batches += deposit.steps
        rank.samples += deposit.samples
        rank.busy_s += busy
        loss = deposit.loss_sum / deposit.loss_samples if deposit.loss_samples else None
        self._run.epochs.append(
            EpochResult(len(self._run.epochs), loss, self._last - self._epoch_began, deposit.samples)
        )
        self._done = 0
        if deposit.not_finite:
            self._bar.line(
                f"flodl: the loss of epoch {len(self._run.epochs)} is not finite: the model no longer learns"
            )

    def _close_epoch(self) -> None:
        """The epoch is evaluated, if it is at all: write and tell."""
        epoch = self._run.epochs[-1]
        self._folder.append_metrics(epoch)
        parts = [f"epoch {epoch.epoch + 1}/{self._terms.epochs}:"]
        if epoch.loss is not None:
            parts.append(f"loss {epoch.loss:.4f},")
        parts += [f"{name} {value:.4f}," for name, value in (epoch.eval or {}).items()]
        parts.append(
            f"{epoch.samples} samples in {epoch.wall_s:.1f} s ({epoch.samples / max(1e-9, epoch.wall_s):.0f}/s)"
        )
        self._bar.line(" ".join(parts))
        self._write_state("training", "training alone")
        self._epoch_began = time.perf_counter()

    def _finish(self) -> None:
        self._figures()
        self._folder.write_checkpoint(self._model)
        self._over = True
        self._folder.write_result(self._run)
        self._write_state("done", f"trained {self._run.samples} samples")
        self.result = self._run
        self._bar.line(f"flodl: done in {self._run.wall_s:.1f} s; files in {self._folder.path}")

    def _figures(self) -> None:
        run, rank = self._run, self._rank
        run.wall_s = self._last - self._began
        run.samples = rank.samples
        run.samples_per_s = rank.samples / max(1e-9, run.wall_s)
        rank.samples_per_s = rank.samples / max(1e-9, rank.busy_s)
        rank.wait_s = max(0.0, run.wall_s - rank.busy_s)
        run.balance = min(1.0, rank.busy_s / run.wall_s) if run.wall_s > 0 else None
        run.sync_share = 0.0

    def _progress(self, rate: float) -> Progress:
        return Progress(
            epoch=len(self._run.epochs),
            epochs=self._terms.epochs,
            samples=self._done,
            dataset=self._terms.dataset,
            samples_per_s=rate,
            ranks=[RankProgress(rank=0, samples_per_s=rate, batches=self._rank.batches)],
        )

    def _write_state(self, phase: str, why: str, progress: Progress | None = None, cause: Cause | None = None) -> None:
        """And a word, once, when the disk does not take what we write."""
        place = self._place
        status = {"training": "training", "done": "done", "failed": "lost"}[phase]
        self._folder.write_state(
            State(
                run=self._folder.id,
                phase=phase,
                why=why,
                mode=self._terms.mode or ALONE_MODE,
                joined_ranks=1,
                joined_hosts=1,
                min_rank_start=1,
                target_ranks=1,
                window_remaining_secs=None,
                cap_remaining_secs=None,
                start_mode="auto",
                start_armed=False,
                members=[
                    Member(
                        place.host,
                        [0],
                        [place.device],
                        [],
                        "",
                        0.0,
                        road="local",
                        status="running" if phase == "training" else "left",
                    )
                ],
                ranks=[RankState(0, place.host, place.device, status)],
                progress=progress,
                cause=cause,
            )
        )
        if self._folder.trouble and not self._troubled:
            self._troubled = True
            self._bar.line(f"flodl: {self._folder.trouble}")


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}".rstrip(": ")

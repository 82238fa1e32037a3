"""A script run alone: one window per epoch, no averaging, and the run's folder written here.

The same permutation, seeds and batches as a world of one has, so the numbers are the same.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from flodl_planes.rank.bar import Bar
from flodl_planes.rank.keeper import Keeper
from flodl_planes.rank.schema import slots_of
from flodl_planes.rank.solo_saves import SoloSaves
from flodl_planes.rank.terms import ALONE_MODE
from flodl_planes.rank.windows import PlanSeen, in_words
from flodl_planes.records import cursor as cursors
from flodl_planes.records.cursor import Cursor
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
        self._done = 0  # samples of this epoch, in this run
        self._before: list[list[int]] = []  # what a run before this one had done of it
        self._loss_before = (0.0, 0)
        self._saves: SoloSaves | None = None
        self._epoch_began = self._began = self._last = time.perf_counter()
        self._state_due = 0.0
        self._over = False

    def open(self, model: torch.nn.Module, on_plan: PlanSeen, keeper: Keeper) -> Plan | None:
        self._keeper, self._on_plan = keeper, on_plan
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
        device = next(model.parameters()).device
        self._saves = SoloSaves(self._folder.path, terms, slots, device, keeper, self._say)
        found = self._saves.find()
        if found is not None:
            self._run.epochs, self._run.resumed = list(found.history), self._saves.resumed
            self._before, self._loss_before = found.merged, (found.loss_sum, found.loss_samples)
        self._epoch_began = self._began = self._last = time.perf_counter()
        return self._first_plan(found)

    def tick(self, samples: int) -> None:
        self._done += samples
        self._last = now = time.perf_counter()
        rate = self._done / max(1e-9, now - self._epoch_began)
        done = self._done + sum(count for _, count in self._before)
        self._bar.show(len(self._run.epochs), self._terms.epochs, done, self._terms.dataset, rate)
        if self._saves is not None and self._saves.due(now):
            self._saves.save(self._cursor("checkpoint"), now)
        if now > self._state_due:
            self._state_due = now + STATE_EVERY
            self._write_state("training", "training alone", self._progress(rate))

    def report(self, deposit: Deposit) -> Plan | None:
        run, terms = self._run, self._terms
        if deposit.samples:
            saves = self._checked()
            self._count(deposit)
            epoch = len(run.epochs) - 1
            last = epoch + 1 == terms.epochs
            if not terms.evaluates:
                self._close_epoch()
            if not last and saves.epoch_due(epoch):
                saves.save(self._cursor("checkpoint"), self._last)
            if not last:
                return self._plan(epoch + 1, evaluate=epoch if terms.evaluates else None)
            if terms.evaluates:
                return Plan(window=terms.epochs, epoch=epoch, spans=[], evaluate=epoch)
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
        run.verdict, run.why = "failed", "interrupted" if isinstance(error, KeyboardInterrupt) else in_words(error)
        self._rank.samples += self._done  # of the epoch that was not to be finished
        self._figures()
        self._bar.close()
        self._rescue(error)
        self._folder.write_result(run)
        fix = error.fix if isinstance(error, Fault) else ""
        self._write_state("failed", run.why, cause=Cause(what=run.why, host=self._place.host, rank=0, fix=fix))

    def _say(self, text: str) -> None:
        self._bar.line(f"flodl: {text}")

    def save(self, number: int) -> None:
        pass  # no plan of ours asks

    def close(self) -> None:
        if self._saves is not None:
            self._saves.wait()
        self._bar.close()

    def _checked(self) -> SoloSaves:
        assert self._saves is not None  # open has been called
        self._saves.check()
        return self._saves

    def _cursor(self, reason: str) -> Cursor:
        """Of this very step, which is about to be saved."""
        assert self._saves is not None
        if reason in ("checkpoint", "finished"):
            self._keeper.on_save(min(len(self._run.epochs), self._terms.epochs - 1))
        left = cursors.remaining(self._terms.dataset, self._before)
        merged = [*self._before, *cursors.first(left, self._done)]
        losses, samples = self._keeper.losses() if self._done else (0.0, 0)
        loss = (self._loss_before[0] + losses, self._loss_before[1] + samples)
        return self._saves.cursor(self._folder.id, reason, len(self._run.epochs), merged, self._run.epochs, loss)

    def _rescue(self, error: BaseException) -> None:
        """What has been learned is worth keeping, unless it is no number or a step was cut through. The model alone may
        find room where all of it did not.
        """
        code = error.code if isinstance(error, Fault) else ""
        if (
            self._saves is None
            or code == "not-finite"
            or not self._saves.at_step
            or not (self._done or self._run.epochs)
        ):
            return
        reason = "graceful_shutdown" if isinstance(error, KeyboardInterrupt) else "run_failed"
        with contextlib.suppress(Fault):
            self._saves.save_now(self._cursor(reason), state=code != "checkpoint-failed")
            self._bar.line(f"flodl: what was learned is kept in {self._folder.path}; resume='latest' goes on from it")

    def _plan(self, epoch: int, evaluate: int | None) -> Plan:
        terms = self._terms
        batches = -(-terms.dataset // terms.batch_size)
        left = cursors.remaining(terms.dataset, self._before)
        step = (epoch + 1) * batches - sum(-(-count // terms.batch_size) for _, count in left)
        plan = Plan(window=epoch, epoch=epoch, spans=left, evaluate=evaluate, step=step)
        self._on_plan(plan)
        return plan

    def _first_plan(self, found: Cursor | None) -> Plan:
        """With the evaluation that the run before owed. The model of one that was gone on from is another by now."""
        terms, epoch = self._terms, len(self._run.epochs)
        owed = epoch - 1 if terms.evaluates and found is not None and found.unevaluated else None
        if owed is not None and self._before:
            self._close_epoch()
            owed = None
        if epoch < terms.epochs:
            return self._plan(epoch, evaluate=owed)
        step = epoch * -(-terms.dataset // terms.batch_size)
        return Plan(window=epoch, epoch=epoch - 1, spans=[], evaluate=owed, step=step)

    def _count(self, deposit: Deposit) -> None:
        """An epoch's samples are through."""
        rank, busy = self._rank, (deposit.compute_ms + deposit.data_ms) / 1e3
        rank.batches += deposit.steps
        rank.samples += deposit.samples
        rank.busy_s += busy
        loss_sum, loss_samples = self._loss_before[0] + deposit.loss_sum, self._loss_before[1] + deposit.loss_samples
        loss = loss_sum / loss_samples if loss_samples else None
        samples = deposit.samples + sum(count for _, count in self._before)
        self._run.epochs.append(EpochResult(len(self._run.epochs), loss, self._last - self._epoch_began, samples))
        self._done, self._before, self._loss_before = 0, [], (0.0, 0)
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
        parts += [f"{name} {value:.4f}," for name, value in epoch.figures().items()]
        parts.append(
            f"{epoch.samples} samples in {epoch.wall_s:.1f} s ({epoch.samples / max(1e-9, epoch.wall_s):.0f}/s)"
        )
        self._bar.line(" ".join(parts))
        self._write_state("training", "training alone")
        self._epoch_began = time.perf_counter()

    def _finish(self) -> None:
        self._figures()
        assert self._saves is not None
        self._saves.save_now(self._cursor("finished"))
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

"""The Trainer: what a training script holds. The same code trains alone, and as one of many ranks.

    result = Trainer(model=…, optimizer=…, loss=…, data=…, batch_size=32, epochs=5).run()

or, for people with their own loop:

    with Trainer(model=…, optimizer=…, data=…, batch_size=32, epochs=5) as t:
        for epoch in t.epochs():
            for batch in t.batches():
                t.backward(loss_fn(t.model, batch))
                t.step()

torch is imported when training begins, not before: a script that becomes the launcher never loads it for us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from flodl_planes.rank import misuse, signature_probe
from flodl_planes.rank.averaging import Averaging
from flodl_planes.rank.callbacks import Callbacks
from flodl_planes.rank.members import windows_of
from flodl_planes.rank.meter import Meter
from flodl_planes.rank.terms import ALONE_MODE, Cadence, Settings, check_data_signature, check_dataset
from flodl_planes.rank.windows import cut
from flodl_planes.rank.wishes import Conveniences, Safety
from flodl_planes.role import fault_hook
from flodl_planes.role.place import LocalCluster, local_cluster
from flodl_planes.role.roles import dispatch
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import Plan
from flodl_wire.result import RunResult

if TYPE_CHECKING:
    import torch

    from flodl_planes.rank.batches import Batches

GIVE_UP = 1000  # batches gone through t.backward() before the first t.step(): more than anybody gathers by hand
_joined = False  # a rank joins its run once; a second Trainer in the same script would wait for ever


class Trainer:
    """Trains `model` on `data`, alone or as one rank of a world; which of the two, the environment says.

    model       a function that builds the module, called after torch is seeded with `seed` (so weights repeat); or a
    module.
    optimizer   a function from the model's parameters (a list) to a torch optimizer.
    loss        a function (model, batch) → mean loss of the batch, a scalar tensor. Not needed for a loop of your own.
    data        a map-style dataset: len() and [index].
    evaluate    a function model → {"name": number}; called once per epoch on the averaged model.

    All others, with their defaults: the tables of the package's README.

    Raises Refused for arguments that cannot be meant, before anything is started.
    """

    def __init__(
        self,
        *,
        model: Callable[[], torch.nn.Module] | torch.nn.Module,
        optimizer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer],
        data: Any,
        loss: Callable[[torch.nn.Module, Any], torch.Tensor] | None = None,
        batch_size: int = 32,
        epochs: int = 1,
        seed: int = 0,
        workers: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        evaluate: Callable[[torch.nn.Module], Mapping[str, float]] | None = None,
        data_signature: str | None = None,
        mode: str | None = None,
        max_failure: int | float | str | None = None,
        gamma: float = 1.0,
        anchor: int | None = None,
        min_anchor: int | None = None,
        max_anchor: int | None = None,
        overhead_target: float | None = None,
        max_batch_diff: int | None = None,
        relax_up: bool | None = None,
        partition_ratios: list[float] | None = None,
        speed_hint: tuple[int, float] | None = None,
        guard: str | None = None,
        divergence_threshold: float | None = None,
        max_overshoot: int | None = None,
        meta_controller: bool | None = None,
        progressive: bool | None = None,
        wire: str = "float32",
        outer: str | None = None,
        outer_lr: float | None = None,
        outer_momentum: float | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
        amp: str | None = None,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        scheduler_by: str = "step",
        lr_scale_ratio: float = 0.0,
        on_epoch: Callable[[torch.nn.Module, int, dict[str, float]], Any] | None = None,
        on_checkpoint: Callable[[torch.nn.Module, int], Any] | None = None,
        callback_rank: int | None = None,
        checkpoint_every: int | str | None = "300s",
        resume: str | Path | None = None,
        stall_timeout: float | None = None,
        nan: str = "stop",
    ) -> None:
        fault_hook.install()
        cadence = Cadence(
            anchor,
            min_anchor,
            max_anchor,
            overhead_target,
            max_batch_diff,
            relax_up,
            partition_ratios,
            guard,
            divergence_threshold,
            max_overshoot,
            meta_controller,
            progressive if progressive is not None or accumulate == 1 else False,  # pieces would cut steps short
            speed_hint,
            None if accumulate == 1 else accumulate,
        )
        averaging = Averaging(wire, outer, outer_lr, outer_momentum)
        safety = Safety.read(max_failure, checkpoint_every, resume, stall_timeout, nan, callback_rank)
        self._conveniences = Conveniences(clip_norm, accumulate, amp, scheduler, scheduler_by, lr_scale_ratio)
        self._settings = Settings(
            batch_size, epochs, seed, workers, mode, gamma, cadence, averaging.wire, averaging.as_outer(), safety
        )
        self._callbacks = Callbacks(evaluate, on_epoch, on_checkpoint)
        misuse.check_functions(model=model, optimizer=optimizer, loss=loss, collate=collate, **vars(self._callbacks))
        check_dataset(data, 1)
        check_data_signature(data_signature)
        if signature_probe.asked():
            signature_probe.answer(model, data, seed, data_signature)
        dispatch(mode=self._settings.mode)  # does not come back in a launcher, an agent or a relay
        self._place = local_cluster()
        if self._place.mode is not None:
            self._settings.agree(self._place.mode, self._place.world_size)
        self._samples = check_dataset(data, self._place.world_size)
        self._sources = (model, optimizer)
        self._loss = loss
        self._data = data
        self._collate = collate
        self._state = "new"  # new | open | closed
        self._plan: Plan | None = None
        self._epoch: int | None = None
        self._meter = Meter()
        self._walk = "none"  # of the epoch's batches: none | begun | left | done
        self._batch: int | None = None  # samples of the batch that the script holds
        self._worked = False
        self._unused = 0  # calls of t.backward() before the first t.step(); nothing is learned by them
        self._stepped = False
        self._losses: list[tuple[torch.Tensor, int]] = []
        self.result: RunResult | None = None

    # what a script may look at

    model: torch.nn.Module  # there once training has begun
    optimizer: torch.optim.Optimizer
    device: torch.device

    @property
    def rank(self) -> int:
        """This process's number in the world; 0 alone."""
        return self._place.rank

    @property
    def world_size(self) -> int:
        """Ranks in the world; 1 alone."""
        return self._place.world_size

    @property
    def cluster(self) -> LocalCluster:
        """This process's place: host, device, data_path, cache_path, …"""
        return self._place

    # the two ways to train

    def run(self) -> RunResult:
        """Train to the end and return what was done. Every rank gets the same result, and its model holds the last
        average."""
        if self._loss is None:
            raise misuse.no_loss()
        with self:
            for _ in self.epochs():
                for batch in self.batches():
                    with self.autocast():
                        loss = self._loss(self.model, batch)
                    self.backward(loss)
                    self.step()
        assert self.result is not None  # epochs() has seen to it
        return self.result

    def __enter__(self) -> Trainer:
        if self._state != "new":
            raise misuse.used_twice()
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "closed"
        cause = None if error is None else self._batches.cause(error)
        if error is None and self.result is None:
            cause = misuse.left_early("t.epochs()")
        if cause is not None:
            self._windows.fail(cause)
        self._close()
        if cause is not None and cause is not error:
            raise cause from error

    def epochs(self) -> Iterator[int]:
        """The epochs, from 0 or from where a checkpoint stood. Go through `batches` in each, to its end. The run is
        complete when this ends.
        """
        self._require_open("t.epochs()")
        epochs = self._settings.epochs
        everything = epochs * -(-self._samples // self._settings.batch_size)
        left = self._plan is not None and self._plan.step < everything  # else it was done, but for an evaluation
        for epoch in range(self._plan.epoch if self._plan and left else epochs, epochs):
            self._epoch, self._walk = epoch, "none"
            yield epoch
            if self._walk != "done":
                raise misuse.left_early("t.batches()")
        self._epoch = None
        while self._plan is not None:  # nothing but an evaluation can be left
            if self._plan.spans:
                raise Broken("bad-plan", "cannot go on training", "the hub dealt samples behind the last epoch")
            self._take(self._windows.report(Meter().deposit(self._plan.window)))
        self.result = self._windows.result

    def batches(self) -> Iterator[Any]:
        """This rank's batches of the epoch, on its device. Between two of them the model may be replaced by the
        average."""
        self._require_open("t.batches()")
        if self._epoch is None:
            raise misuse.no_epoch()
        self._walk = "begun"
        try:
            while self._plan is not None and self._plan.epoch == self._epoch:
                yield from self._window(self._plan)
                deposit = self._meter.deposit(self._plan.window)
                if deposit.samples and not deposit.steps:
                    raise misuse.nothing_done()
                self._structure.check()
                deposit.lr = self._stepper.learning_rate
                self._take(self._windows.report(deposit))
            if self._unused and not self._stepped:
                raise misuse.never_stepped(self._unused)
            self._walk = "done"
        finally:
            if self._walk == "begun":
                self._walk = "left"

    def autocast(self) -> AbstractContextManager[Any]:
        """For a loop of your own with amp=: compute the loss inside it, and call t.backward(loss) outside."""
        self._require_open("t.autocast()")
        context: AbstractContextManager[Any] = self._stepper.autocast()
        return context

    def backward(self, loss: torch.Tensor) -> None:
        """Check the loss, note it for the records, and compute the gradients."""
        if self._batch is None:
            raise misuse.no_batch("t.backward(loss)")
        misuse.check_loss(loss)
        if not self._stepped:
            self._unused += 1
            if self._unused > GIVE_UP:
                raise misuse.never_stepped(GIVE_UP)
        self._stepper.backward(loss)
        self._worked = True
        if self.device.type == "cpu":
            self._meter.lost(loss.item(), self._batch)
        else:
            self._losses.append(
                (loss.detach(), self._batch)
            )  # .item() would wait for the GPU: once per window is enough

    def step(self) -> None:
        """One step of the optimizer (with accumulate=n: in every n-th call), and the gradients are gone."""
        if self._batch is None:
            raise misuse.no_batch("t.step()")
        self._stepper.step()
        self._worked = self._stepped = True

    # inside

    def _require_open(self, call: str) -> None:
        if self._state != "open":
            raise misuse.not_open(call)

    def _open(self) -> None:
        global _joined
        import torch

        from flodl_planes.rank import seeds
        from flodl_planes.rank.batches import Batches
        from flodl_planes.rank.keeper import Keeper
        from flodl_planes.rank.stepper import Stepper
        from flodl_planes.rank.structure import Structure

        place, settings = self._place, self._settings
        if not place.alone and _joined:
            raise misuse.second_trainer()
        self.device = torch.device(place.device)
        if place.gpu_ram_share is not None:
            seeds.limit_memory(self.device, place.gpu_ram_share)
        model, optimizer = self._sources
        seeds.plant(settings.seed)
        self.model = misuse.check_model(model if isinstance(model, torch.nn.Module) else model()).to(self.device)
        parameters = list(self.model.parameters())
        self.optimizer = misuse.check_optimizer(optimizer(list(parameters)), parameters)
        self.model.train()
        self._stepper = Stepper(self.optimizer, parameters, self.device, self._conveniences, place.world_size)
        keeper = Keeper(self._stepper, self.device, place.rank, settings.seed)
        keeper.losses = lambda: (self._meter.loss_sum, self._meter.loss_samples)
        keeper.on_save = lambda epoch: self._callbacks.saved(self.model, epoch, self.device)
        seeds.plant(seeds.of_rank(settings.seed, place.rank))
        self._batches: Batches = Batches(
            self._data,
            settings.batch_size,
            seed=settings.seed,
            rank=place.rank,
            workers=settings.workers,
            collate=self._collate,
            device=self.device,
        )
        terms = settings.terms(place.mode or settings.mode or ALONE_MODE, self._samples, self._callbacks.each_epoch)
        self._windows = windows_of(terms, place, self.device, self.optimizer.state.clear)
        try:
            _joined = not place.alone
            self._state = "open"
            self._structure = Structure(self.model)
            self._take(self._windows.open(self.model, self._batches.begin, keeper))
        except BaseException as error:
            self._state = "closed"
            self._windows.fail(error)
            self._close()
            raise

    def _close(self) -> None:
        self._windows.close()
        self._batches.close()

    def _window(self, plan: Plan) -> Iterator[Any]:
        """The batches of one plan, timed into a new meter."""
        self._meter = meter = Meter()
        loaded = self._batches.of(plan)
        self._stepper.begin(plan, len(cut(plan.spans, self._settings.batch_size)))
        while True:
            asked = time.perf_counter()
            item = next(loaded, None)
            if item is None:
                break
            self._batch, batch = item
            self._worked = False
            got = time.perf_counter()
            meter.got(asked, got)
            yield batch
            if meter.batches == 0:
                self._wait_for_device()  # kernels only queued would make the first batch look free
            meter.done(got, time.perf_counter(), self._batch, self._worked)
            self._stepper.counted()
            self._windows.tick(self._batch)
        self._batch = None
        queued = time.perf_counter()
        self._stepper.flush()
        self._wait_for_device()
        meter.compute += time.perf_counter() - queued
        for loss, samples in self._losses:
            meter.lost(loss.item(), samples)
        self._losses.clear()

    def _wait_for_device(self) -> None:
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)

    def _take(self, plan: Plan | None) -> None:
        """What comes next; an evaluation that it asks for happens at once, while the model is the average."""
        self._plan = plan
        if plan is not None:
            self._callbacks.act(plan, self.model, self.device, self._windows)

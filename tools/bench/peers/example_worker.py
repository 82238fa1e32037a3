"""One process that trains an example of docs/examples again and again, a line on stdin at a time: alone by the Trainer,
alone by a plain loop, or as one rank of DistributedDataParallel on gloo.

argv: folder of the example, rank, world. Rank 0 prints the port of its TCPStore, the others read it as first line.
All print ``ready``, then for each line, a JSON object
{"kind": "alone"|"plain"|"ddp", "argv": [...], "seconds": s or "steps": n, "slow": factor}, one with {"samples",
"train_s", "evaluate_s", "dataset"}.

The example's own main() runs each time, unchanged; only the name `Trainer` in it means another class, and the run is
cut short once enough is measured. Batches are timed from being asked for to the next one's being asked for, so that
loading counts and evaluation, which is timed by itself at the end, does not.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import flodl_planes

WARM_UP = 3  # batches of each call that are not counted: first touches, the optimizer's buffers


class Enough(Exception):
    """The measurement is complete; thrown through the example's main()."""


class Stopwatch:
    """Batches counted until `seconds` of them, or `steps` of them, are together."""

    def __init__(self, seconds: float | None, steps: int | None) -> None:
        self.seconds, self.steps = seconds, steps
        self.seen = self.counted = self.samples = 0
        self.train_s = 0.0
        self.trainer = None

    def timed(self, trainer, batches):
        self.trainer = trainer
        batches = iter(batches)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            yield batch
            self.seen += 1
            if self.seen <= WARM_UP:
                continue
            self.train_s += time.perf_counter() - asked
            self.counted += 1
            self.samples += len(batch[0])
            if self.steps is not None and self.counted >= self.steps:
                raise Enough
            if self.seconds is not None and self.train_s >= self.seconds:
                raise Enough


def alone(watch):
    """The Trainer, as the example knows it."""

    class Alone(flodl_planes.Trainer):
        def __init__(self, *, evaluate, **arguments):
            super().__init__(evaluate=evaluate, **arguments)
            self.judge = evaluate

        def batches(self):
            return watch.timed(self, super().batches())

        def evaluate_once(self):
            self.model.eval()
            with torch.no_grad():
                self.judge(self.model)

    return Alone


class Loop:
    """What the examples use of the Trainer, as people write it without one."""

    def __init__(self, watch, *, model, optimizer, data, batch_size, epochs, seed, evaluate, loss=None):
        torch.manual_seed(seed)
        self.rank = 0
        self.bare = self.model = model()
        self._watch, self._data, self._loss, self._evaluate = watch, data, loss, evaluate
        self._batch_size, self._epochs, self._seed = batch_size, epochs, seed
        self._wrap()
        self.optimizer = optimizer(list(self.model.parameters()))

    def _wrap(self):
        self._sampler = None
        generator = torch.Generator().manual_seed(self._seed)
        self._loader = DataLoader(self._data, batch_size=self._batch_size, shuffle=True, generator=generator)

    def run(self):
        with self:
            for _ in self.epochs():
                for batch in self.batches():
                    self.backward(self._loss(self.model, batch))
                    self.step()

    def __enter__(self):
        self.model.train()
        return self

    def __exit__(self, *_):
        pass

    def epochs(self):
        for epoch in range(self._epochs):
            if self._sampler is not None:
                self._sampler.set_epoch(epoch)
            yield epoch

    def batches(self):
        return self._watch.timed(self, self._loader)

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def evaluate_once(self):
        self.bare.eval()
        with torch.no_grad():
            self._evaluate(self.bare)


class Ddp(Loop):
    """The same loop, the model in DistributedDataParallel and a DistributedSampler, all as torch's tutorial has it."""

    def _wrap(self):
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(self.bare)
        self._sampler = DistributedSampler(self._data, seed=self._seed)
        self._loader = DataLoader(self._data, batch_size=self._batch_size, sampler=self._sampler)


def main() -> None:
    folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    port = int(sys.stdin.readline()) if rank else 0  # 0: any free one
    limit = timedelta(seconds=120)
    store = dist.TCPStore("127.0.0.1", port, world, rank == 0, timeout=limit, wait_for_workers=False)
    if rank == 0:
        print(store.port, flush=True)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    sys.path.insert(0, str(folder))
    example = importlib.import_module("train")
    example_slowness = example.Slowness

    class OwnWorkOnly(example_slowness):
        """Sleeps in proportion to this thread's own work: in DDP a step also waits for the others inside backward(),
        which a slow box does not do more slowly."""

        def begin(self):
            self.began = time.thread_time()

        def end(self, *_):
            if self.factor > 1:
                time.sleep((self.factor - 1) * (time.thread_time() - self.began))

    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        watch = Stopwatch(order.get("seconds"), order.get("steps"))
        ddp = order["kind"] == "ddp"
        example.Slowness = OwnWorkOnly if ddp else example_slowness
        loops = {"plain": Loop, "ddp": Ddp}
        if order["kind"] in loops:
            chosen = loops[order["kind"]]
            example.Trainer = lambda chosen=chosen, watch=watch, **given: chosen(watch, **given)
        else:
            example.Trainer = alone(watch)
        # a great many epochs: the stopwatch ends it. Rank 0 is who a process is that belongs to no world.
        sys.argv = ["train.py", *order["argv"], "--epochs", "100000", "--slow", f"0:{order['slow']}"]
        if ddp:
            dist.barrier()
        with contextlib.redirect_stdout(sys.stderr):
            try:
                example.main()
            except Enough:
                pass
            began = time.perf_counter()
            watch.trainer.evaluate_once()
        told = {
            "samples": watch.samples,
            "train_s": watch.train_s,
            "evaluate_s": time.perf_counter() - began,
            "dataset": len(watch.trainer._data),
        }
        print(json.dumps(told), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

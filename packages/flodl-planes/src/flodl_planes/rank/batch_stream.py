"""Batches that worker processes load, window after window without a gap: what comes next is loaded as soon as it is
known, while the batches before it are still being used.

A DataLoader that begins an iteration ends the one before, so all windows go through a single one that never ends. Its
sampler is asked for one more batch whenever one is taken; where nothing is known to be loaded it deals a *blank*, which
a worker hands back at once, and which is passed over here.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import signal_handling

from flodl_wire.faults import Broken

Collate = Callable[[list[Any]], Any]
_BLANK = 0


class BatchStream:
    """`add` batches in the order in which they will be wanted, and take them `of` what was added; or `drop` it."""

    def __init__(self, dataset: Any, collate: Collate, *, workers: int, pinned: bool, seed: int) -> None:
        generator = torch.Generator()  # of its own: loading must not move the stream that dropout draws from
        generator.manual_seed(seed)
        self._feed = _Feed()
        self._loader: DataLoader[Any] | None = DataLoader(
            Fetcher(dataset, collate),
            batch_size=None,
            sampler=self._feed,
            num_workers=workers,
            collate_fn=_as_it_is,
            pin_memory=pinned,
            generator=generator,
        )
        self._loaded: Iterator[Any] | None = None  # from the first `add` on: then the workers are started
        self._number = _BLANK
        self._wanted: set[int] = set()

    def add(self, batches: list[list[int]]) -> int:
        """Have these batches of indices loaded, behind what was added before. Returns the number they go by."""
        assert self._loader is not None, "it is closed"
        self._number += 1
        self._wanted.add(self._number)
        self._feed.waiting += [(self._number, indices) for indices in batches]
        if self._loaded is None:
            _Alarm.install()
            self._loaded = iter(self._loader)
        while self._feed.waiting and self._feed.sent[0] not in self._wanted:
            self._take()  # the workers are busy with nothing that counts: each that is taken makes room for one
        return self._number

    def drop(self, number: int) -> None:
        """Nobody will ask for these. What workers have of them already is loaded, and passed over."""
        self._wanted.discard(number)
        self._feed.waiting = deque(item for item in self._feed.waiting if item[0] != number)

    def of(self, number: int, batches: int) -> Iterator[Any]:
        """That many batches, all that were added under `number`; behind those of every number before it."""
        for _ in range(batches):
            found, batch = self._take()
            while found != number:
                found, batch = self._take()
            yield batch
        self._wanted.discard(number)

    def close(self) -> list[Any]:
        """Let the worker processes go: these, and how each ended is known. Left to the garbage collector they would be
        waited for, 5 s each.
        """
        workers = self._workers()
        if workers:
            self._loaded._shutdown_workers()  # type: ignore[union-attr]
        self._loaded = self._loader = None
        return workers

    def cause(self, error: BaseException) -> BaseException:
        """`error`, or the death of a worker process that is behind it. Nothing can be loaded afterwards.

        torch raises one of several things when one dies: what its handler of signals, the queue or a socket notices
        first.
        """
        if isinstance(error, (RuntimeError, OSError, EOFError)):
            for worker in self.close():
                if worker.exitcode not in (None, 0, -signal.SIGTERM):  # SIGTERM: how torch ends one that does not go
                    return _died(worker.exitcode)
        return error

    def _take(self) -> tuple[int, Any]:
        assert self._loaded is not None
        number = self._feed.sent.popleft()
        with _Alarm.heard():
            if any(worker.exitcode is not None for worker in self._workers()):
                raise RuntimeError("a worker process of the DataLoader has ended")  # while nobody heard the alarm
            return number, next(self._loaded)

    def _workers(self) -> list[Any]:
        return list(getattr(self._loaded, "_workers", []))


class _Alarm:
    """torch's handler of dead workers, which is heard only while a batch is waited for.

    By itself it raises wherever the interpreter happens to be: in the script's loss, in somebody's `finally`, while the
    error is being explained. Who dies then is found when the next batch is taken.
    """

    _heard = False

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handler(number, frame)
        except RuntimeError:
            if _Alarm._heard:
                raise

    @staticmethod
    def install() -> None:
        """Take the place of torch's handler, before the first worker is started."""
        if threading.current_thread() is not threading.main_thread():
            return  # torch has none there either, and looks after the workers every 5 s
        signal_handling._set_SIGCHLD_handler()
        handler = signal.getsignal(signal.SIGCHLD)
        if callable(handler) and getattr(handler, "__module__", "") == signal_handling.__name__:
            signal.signal(signal.SIGCHLD, _Alarm(handler))

    @staticmethod
    @contextlib.contextmanager
    def heard() -> Iterator[None]:
        """Within this it raises."""
        try:
            _Alarm._heard = True
            yield
        finally:
            _Alarm._heard = False


def _died(code: int) -> Broken:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    hint = {-signal.SIGKILL: " (out of memory?)", -signal.SIGBUS: " (/dev/shm is full?)"}.get(code, "")
    return Broken(
        "loader-died",
        "cannot load the next batch",
        f"a worker process of the DataLoader {how}{hint}",
        "use fewer workers or smaller batches, give a container more --shm-size; with workers=0 the rank loads itself",
    )


class Fetcher(Dataset[Any]):
    """A dataset whose item is a whole batch, asked for by the indices of its samples; None for none."""

    def __init__(self, dataset: Any, collate: Collate) -> None:
        self._dataset, self._collate = dataset, collate

    def __getitem__(self, indices: list[int]) -> Any:
        if not indices:
            return None
        many = getattr(self._dataset, "__getitems__", None)  # torch's own protocol for datasets that fetch in bulk
        return self._collate(many(indices) if callable(many) else [self._dataset[index] for index in indices])


class _Feed:
    """The DataLoader's sampler; called in the script's thread, by the DataLoader's own `next`.

    waiting   what no worker has yet: (number, indices)
    sent      the numbers of what they have, which comes back in this order
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, list[int]]] = deque()
        self.sent: deque[int] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            number, indices = self.waiting.popleft() if self.waiting else (_BLANK, [])
            self.sent.append(number)
            yield indices


def _as_it_is(batch: Any) -> Any:
    return batch

"""From a plan's spans to batches on the rank's device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import default_collate

from flodl_planes.rank.batch_stream import BatchStream, Collate, Fetcher
from flodl_planes.rank.permutation import order
from flodl_planes.rank.windows import cut
from flodl_wire.plane_messages import Plan


class Batches:
    """Loads the batches of one plan after the other.

    With `workers` > 0 that many lasting processes do it. `begin` starts them on a plan as soon as it is known, while
    the average is still being made (cpu_cadence) or the window before it is still being done (cpu_async). The plan that
    is being done, and one that was begun, are all they know; what they have loaded is handed out by plan.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        seed: int,
        rank: int,
        workers: int = 0,
        collate: Collate | None = None,
        device: torch.device,
    ) -> None:
        self._samples = len(dataset)
        self._batch_size = batch_size
        self._seed = seed
        self._device = device
        self._order: tuple[int, Any] = (-1, None)
        collate = collate or default_collate
        self._fetcher = Fetcher(dataset, collate)
        self._begun: tuple[Plan, int] | None = None  # and not asked for yet; the number is the stream's
        self._stream: BatchStream | None = None
        if workers:
            pinned, stream_seed = device.type == "cuda", seed * 1_000_003 + rank
            self._stream = BatchStream(dataset, collate, workers=workers, pinned=pinned, seed=stream_seed)

    def begin(self, plan: Plan) -> None:
        """Start loading this plan in the workers. It takes the place of one that was begun and not asked for."""
        if self._stream is None or not plan.spans or (self._begun is not None and self._begun[0] == plan):
            return
        if self._begun is not None:
            self._stream.drop(self._begun[1])
        self._begun = (plan, self._stream.add(self._indices(plan)))

    def of(self, plan: Plan) -> Iterator[tuple[int, Any]]:
        """The plan's batches in order, as (samples, batch on the device)."""
        counts = [count for _, count in cut(plan.spans, self._batch_size)]
        loaded: Iterator[Any]
        if self._stream is None or not plan.spans:
            loaded = map(self._fetcher.__getitem__, self._indices(plan))
        else:
            self.begin(plan)
            assert self._begun
            (_, number), self._begun = self._begun, None
            loaded = self._stream.of(number, len(counts))
        for count, batch in zip(counts, loaded, strict=True):
            yield count, move(batch, self._device)

    def cause(self, error: BaseException) -> BaseException:
        """`error`, or the death of a worker process that is behind it. Nothing can be loaded afterwards."""
        return error if self._stream is None else self._stream.cause(error)

    def close(self) -> None:
        """Let the worker processes go."""
        if self._stream is not None:
            self._stream.close()

    def _indices(self, plan: Plan) -> list[list[int]]:
        if self._order[0] != plan.epoch:
            self._order = (plan.epoch, order(self._samples, self._seed, plan.epoch))
        dealt = self._order[1]
        return [dealt[position : position + count].tolist() for position, count in cut(plan.spans, self._batch_size)]


def move(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on `device`; lists, tuples (named ones too) and dicts are walked, anything
    else left alone."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(part, device) for part in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(part, device) for part in batch)
    if isinstance(batch, dict):
        return {key: move(part, device) for key, part in batch.items()}
    return batch

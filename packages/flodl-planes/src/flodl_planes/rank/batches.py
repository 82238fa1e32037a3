"""From a plan's spans to batches on the rank's device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from flodl_planes.rank.permutation import order
from flodl_planes.rank.windows import cut
from flodl_wire.plane_messages import Plan

Collate = Callable[[list[Any]], Any]


class Batches:
    """Loads the batches of one plan after the other.

    With `workers` > 0 a torch DataLoader with that many lasting processes does it. `begin` starts them on a plan as
    soon as the plan is known, while the average is still being made, so they work across the window's edge; each
    plan is an iteration of its own, so no batch of one can turn up in the other.
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
        self._dataset = dataset
        self._samples = len(dataset)
        self._batch_size = batch_size
        self._seed = seed
        self._collate: Collate = collate or default_collate
        self._device = device
        self._order: tuple[int, Any] = (-1, None)
        self._feed = _Feed()
        self._started: tuple[Plan, Iterator[Any]] | None = None
        self._loader: DataLoader[Any] | None = None
        if workers:
            generator = torch.Generator()  # of its own: loading must not move the stream that dropout draws from
            generator.manual_seed(seed * 1_000_003 + rank)
            self._loader = DataLoader(
                dataset,
                batch_sampler=self._feed,
                num_workers=workers,
                collate_fn=self._collate,
                persistent_workers=True,
                pin_memory=device.type == "cuda",
                generator=generator,
            )

    def begin(self, plan: Plan) -> None:
        """Start loading this plan in the workers. A later call for another plan takes its place."""
        if self._loader is not None and plan.spans and (self._started is None or self._started[0] != plan):
            self._feed.lists = self._indices(plan)
            self._started = (plan, iter(self._loader))

    def of(self, plan: Plan) -> Iterator[tuple[int, Any]]:
        """The plan's batches in order, as (samples, batch on the device)."""
        counts = [count for _, count in cut(plan.spans, self._batch_size)]
        if self._loader is None:
            loaded: Iterator[Any] = (self._collate(self._fetch(indices)) for indices in self._indices(plan))
        else:
            self.begin(plan)
            loaded = self._started[1] if self._started and plan.spans else iter(())
        for count, batch in zip(counts, loaded, strict=True):
            yield count, move(batch, self._device)
        self._started = None

    def close(self) -> None:
        """Let the worker processes go. Left to the garbage collector they would be waited for, 5 s each."""
        self._started = self._loader = None

    def _indices(self, plan: Plan) -> list[list[int]]:
        if self._order[0] != plan.epoch:
            self._order = (plan.epoch, order(self._samples, self._seed, plan.epoch))
        dealt = self._order[1]
        return [dealt[position : position + count].tolist() for position, count in cut(plan.spans, self._batch_size)]

    def _fetch(self, indices: list[int]) -> list[Any]:
        many = getattr(self._dataset, "__getitems__", None)  # torch's own protocol for datasets that fetch in bulk
        return many(indices) if callable(many) else [self._dataset[index] for index in indices]


class _Feed:
    """The DataLoader's batch sampler: each iteration deals the plan that is being begun."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.lists)

    def __len__(self) -> int:
        return len(self.lists)


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

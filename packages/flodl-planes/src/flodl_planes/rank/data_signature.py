"""What a dataset is, as 64 hex digits: two hosts whose signatures differ do not see the same data.

By default its length and 16 of its items, chosen by a fixed seed, so that it costs as much as one small batch. Items
are read twice: where two readings differ (random augmentation), only types, shapes and dtypes count. Decoders of
different versions may give the same picture other bytes; a script that knows better names its data itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SAMPLE = 16  # items
_SEED = 20240229  # any will do; all hosts must draw the same


def of(data: Any, given: str | None) -> str:
    """The signature of the map-style dataset `data`; `given` is the Trainer's ``data_signature``: None for the above,
    "" for "do not compare" (and that is what it returns), any other text names the data.
    """
    if given is not None:
        return hashlib.sha256(given.encode()).hexdigest() if given else ""
    count = len(data)
    drawn = np.random.RandomState(_SEED).permutation(count)[:SAMPLE] if count <= 1 << 20 else _sparse(count)
    indices = [int(index) for index in drawn]
    first, second = (_digest([data[index] for index in indices], contents=True) for _ in range(2))
    items = first if first == second else _digest([data[index] for index in indices], contents=False)
    return hashlib.sha256(f"{count} {items}".encode()).hexdigest()


def _sparse(count: int) -> Any:
    """As many positions of a long dataset, without a permutation of all of it."""
    return np.random.RandomState(_SEED).randint(0, count, SAMPLE, dtype=np.int64)


def _digest(items: list[Any], *, contents: bool) -> str:
    found = hashlib.sha256()
    for item in items:
        _add(found, item, contents)
    return found.hexdigest()


def _add(found: Any, item: Any, contents: bool) -> None:
    """Write `item` into the hash: its kind always, its bytes when `contents`."""
    if isinstance(item, Mapping):
        for key in item:
            found.update(f"key {key!r};".encode())
            _add(found, item[key], contents)
    elif isinstance(item, (str, bytes)):
        raw = item.encode("utf-8", "surrogateescape") if isinstance(item, str) else item
        found.update(f"{type(item).__name__} {len(raw) if contents else ''};".encode())
        found.update(raw if contents else b"")
    elif isinstance(item, (bool, int, float, complex, type(None))):
        found.update(f"{type(item).__name__} {item if contents else ''};".encode())
    elif hasattr(item, "detach") and hasattr(item, "numpy"):  # a torch tensor, without importing torch
        tensor = item.detach().cpu()
        found.update(f"tensor {tensor.dtype} {tuple(tensor.shape)};".encode())
        if contents:
            import torch

            found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(item, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(item)
        found.update(f"array {array.dtype} {array.shape};".encode())
        found.update(array.tobytes() if contents and array.dtype != object else b"")
    elif isinstance(item, Sequence):
        found.update(f"sequence {len(item)};".encode())
        for part in item:
            _add(found, part, contents)
    elif hasattr(item, "tobytes") and hasattr(item, "size"):  # a PIL image
        found.update(f"{type(item).__name__} {item.size};".encode())
        found.update(item.tobytes() if contents else b"")
    else:
        found.update(f"{type(item).__name__};".encode())

"""The order of an epoch: one seeded permutation that every rank computes for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def order(samples: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Dataset indices of one epoch in the order they are dealt, shape (samples,), int64.

    numpy's legacy stream is frozen by its own policy (NEP 19), so the same seed gives the same order on every host
    and in every version; hence RandomState and not a Generator.
    """
    stream: Any = np.random.RandomState((seed + epoch) % 2**32)
    return np.asarray(stream.permutation(samples), dtype=np.int64)

"""What learning_rank.py learns: a linear model whose truth is known, and so is how far from it any number of steps
leaves one.
"""

from __future__ import annotations

import numpy as np

WIDTH, BATCH = 64, 8
RATE, MOMENTUM = 0.004, 0.5


def problem(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """(truth, inputs), float32; the wanted outputs are `inputs @ truth`."""
    stream = np.random.RandomState(7)
    truth = stream.randn(WIDTH).astype(np.float32)
    return truth, stream.randn(samples, WIDTH).astype(np.float32)


def distance_after(steps: float, samples: int) -> float:
    """From the truth, by gradient descent on the whole dataset from zero: what SGD comes to with steps so small."""
    truth, inputs = (each.astype(np.float64) for each in problem(samples))
    curvatures, ways = np.linalg.eigh(inputs.T @ inputs / samples)
    left = np.exp(-RATE / (1 - MOMENTUM) * curvatures * steps)
    return float(np.linalg.norm(left * (ways.T @ truth)))

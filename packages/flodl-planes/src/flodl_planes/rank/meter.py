"""What a rank did in one window, measured. Time is an argument: seconds of any monotonic clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flodl_wire.plane_messages import Deposit


@dataclass
class Meter:
    """Counts one window, from its first request for a batch to its last step. Times in seconds.

    data: waiting for batches. compute: everything the script did with them. first: both, of the first batch, whose
    excess over the others is what filling the pipeline costs.
    """

    batches: int = 0  # that the script has finished with
    steps: int = 0  # of these, batches that were worked on: a backward or an optimizer step
    samples: int = 0
    data: float = 0.0
    compute: float = 0.0
    first: float = 0.0
    loss_sum: float = 0.0
    loss_samples: int = 0
    began: float | None = None  # first request
    ended: float = 0.0

    def got(self, asked: float, now: float) -> None:
        """A batch was requested at `asked` and is there."""
        if self.began is None:
            self.began = asked
        self.data += now - asked
        if self.batches == 0:
            self.first += now - asked

    def done(self, got: float, now: float, samples: int, worked: bool) -> None:
        """The script is through with the batch that it got at `got`."""
        self.compute += now - got
        if self.batches == 0:
            self.first += now - got
        self.batches += 1
        self.steps += worked
        self.samples += samples
        self.ended = now

    def lost(self, loss: float, samples: int) -> None:
        """The mean loss of `samples` samples."""
        self.loss_sum += loss * samples
        self.loss_samples += samples

    def deposit(self, window: int) -> Deposit:
        """The window as it is reported. Waiting is added by whoever waits."""
        finite = math.isfinite(self.loss_sum)
        return Deposit(
            window=window,
            steps=self.steps,
            samples=self.samples,
            compute_ms=self.compute * 1e3,
            data_ms=self.data * 1e3,
            first_ms=self.first * 1e3,
            loss_sum=self.loss_sum if finite else 0.0,  # JSON has no NaN
            loss_samples=self.loss_samples if finite else 0,
            not_finite=not finite,
        )

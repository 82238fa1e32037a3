"""A rank as a process of its own, for tests that kill or stop it: one round, then goodbye.

argv: socket path, rank, elements, what to do ("kill" | "stop" | ""), and at which of its chunks, half spread.
"""

import os
import signal
import sys
from typing import Any

import numpy as np

from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.rank_plane import RankPlane
from flodl_planes.plane.segment import Segment
from flodl_planes.plane.share import Share
from flodl_wire.plane_messages import Deposit, Leaving, RankHello, Round, TensorSpec, Terms


def main() -> None:
    path, rank, elements, deed, at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    tensors = [TensorSpec("w", [elements], "F32", "param")]
    layout = lay_out(tensors)
    live = Segment.create("live", layout.total_bytes)
    live.array.view(np.float32)[:] = np.arange(elements, dtype=np.float32) * (rank + 1)
    spread, spreads = Share._spread, 0

    def half(self: Any, chunk: Any) -> None:
        nonlocal spreads
        if spreads == at and deed:
            hands, self._hands = self._hands, self._hands[:1]
            spread(self, chunk)  # the first rank has the average of this chunk already, the others not yet
            self._hands = hands
            os.kill(os.getpid(), signal.SIGKILL if deed == "kill" else signal.SIGSTOP)
        spreads += 1
        spread(self, chunk)

    Share._spread = half  # type: ignore[method-assign]
    terms = Terms("cpu_sync", 1, 1, 1, 0, False)
    plane = RankPlane.connect(path, RankHello(rank, terms, tensors, layout.sections, "sig"), live)
    plane.send(Deposit(0, 1, 1))
    message = plane.receive()
    assert isinstance(message, Round)
    plane.reduce(message)
    print(float(live.array.view(np.float32).sum(dtype=np.float64)), flush=True)
    sys.stdin.readline()
    plane.send(Leaving())
    plane.close()


main()

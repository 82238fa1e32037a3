"""A model of 1 GB on its way through the shared memory, beside bare copies over the bus. Needs a GPU.

Prints one JSON object: milliseconds of a bare copy from and to pinned memory, of a snapshot (`settle`) and of an
average taken in (`refresh`, and `correct` for cpu_async), and of a stretch of computing with and without a copy beside
it on a stream of its own.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

BYTES = 1 << 30
TIMES = 5


def main() -> int:
    import torch
    from torch import nn

    from flodl_planes.plane.layout import lay_out
    from flodl_planes.plane.segment import Segment
    from flodl_planes.rank.correction import Corrected
    from flodl_planes.rank.schema import Adopted, slots_of

    device = torch.device("cuda:0")
    model = nn.ParameterList([nn.Parameter(torch.randn(BYTES // 4 // 64)) for _ in range(64)]).to(device)
    slots = slots_of(model)
    layout = lay_out([slot.spec for slot in slots])
    host = torch.empty(BYTES // 4, dtype=torch.float32, pin_memory=True)
    there = torch.randn(BYTES // 4, device=device)

    def timed(work: Callable[[], Any]) -> float:
        taken = []
        for _ in range(TIMES):
            torch.cuda.synchronize()
            began = time.perf_counter()
            work()
            torch.cuda.synchronize()
            taken.append((time.perf_counter() - began) * 1e3)
        return round(statistics.median(taken), 2)

    matrix = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)

    def compute() -> None:
        for _ in range(10):
            torch.mm(matrix, matrix)

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def compute_beside_a_copy() -> None:
        with torch.cuda.stream(side):
            host.copy_(there, non_blocking=True)
        compute()

    found = {
        "bytes": BYTES,
        "d2h_ms": timed(lambda: host.copy_(there, non_blocking=True)),
        "h2d_ms": timed(lambda: there.copy_(host, non_blocking=True)),
        "compute_ms": timed(compute),
        "compute_beside_a_copy_ms": timed(compute_beside_a_copy),
    }
    live = Segment.create("live", layout.total_bytes)
    adopted = Adopted(slots, layout.offsets, live.buffer, device)
    found["settle_ms"], found["refresh_ms"] = timed(adopted.settle), timed(adopted.refresh)
    corrected = Corrected(slots, layout, live.array, device)
    average = live.array.copy()
    found["snapshot_ms"] = timed(corrected.settle)
    found["correct_ms"] = timed(lambda: corrected.correct(average, measure=False))
    found["round_over_two_copies"] = round(
        (found["settle_ms"] + found["refresh_ms"]) / (found["d2h_ms"] + found["h2d_ms"]), 3
    )
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

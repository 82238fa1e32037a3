"""How a rank's heap behaves: what a step gives back is kept for the next one.

glibc hands the top of its heap back to the kernel when more than a threshold is free there, and takes it again page by
page at the next step. It raises its thresholds by itself when a large block is freed, as by an evaluation over all
held-out data. The one rank that evaluates is so spared what every other pays at each step: measured on a small CNN on
a processor, 890 page faults a step and a fifth of its time. (malloc(3), mallopt(3))
"""

from __future__ import annotations

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MMAP_THRESHOLD = 32 << 20  # glibc's own upper bound (DEFAULT_MMAP_THRESHOLD_MAX); larger blocks come from the kernel
TRIM_THRESHOLD = 2 * MMAP_THRESHOLD  # as glibc sets it beside that
OWN_WISHES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_heap() -> None:
    """Put the thresholds where glibc would come to by itself; nothing where it is another malloc, or the user has said
    what is wanted.
    """
    if any(os.environ.get(name) for name in OWN_WISHES):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)

"""What a step has given back is there for the next one, in a process that has never freed anything large."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

STEPS = """
import resource
{keep}
def step():
    blocks = [bytearray(600_000) for _ in range(8)]
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""
KEEP = "from flodl_planes.rank.heap import keep_heap; keep_heap()"


def faults(keep: str, **environment: str) -> int:
    """Minor page faults of a step that takes 4.8 MB and gives them back."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_", "LD_"))}
    done = subprocess.run(
        [sys.executable, "-c", STEPS.format(keep=keep)],
        env=clean | environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc, whose malloc this is about")
def test_steps_do_not_fault_their_memory_in_again_and_a_users_own_setting_stands() -> None:
    assert faults("") > 500
    assert faults(KEEP) < 10
    assert faults(KEEP, MALLOC_TRIM_THRESHOLD_="131072") > 500

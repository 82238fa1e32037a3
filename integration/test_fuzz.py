"""Two thousand strangers at a live port while hosts join: `make fuzz` in small."""

from __future__ import annotations

from tools import fuzz


def test_strangers_keep_nobody_out_and_cost_nothing_that_stays() -> None:
    line = fuzz.fuzz_port(2_000, seed=20260101)
    assert "2000 strangers, 20 hosts in" in line

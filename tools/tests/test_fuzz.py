"""`make fuzz` in small: what runs in every `make test`."""

from __future__ import annotations

import pytest
from tools import fuzz

from flodl_wire.faults import Fault


def test_fifty_thousand_mutated_inputs_are_taken_or_refused_and_memory_stays_flat() -> None:
    line = fuzz.fuzz_codec(50_000, seed=20260101)
    assert "bad-message" in line and "oversize" in line and "not-flodl" in line, line


def test_the_same_seed_makes_the_same_inputs() -> None:
    def made(seed: int) -> list[bytes]:
        mutate = fuzz.Mutator(seed)
        return [mutate(b"some bytes") for _ in range(50)]

    assert made(1) == made(1) != made(2)


def test_what_is_no_fault_is_found_and_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(mutate: fuzz.Mutator) -> None:
        raise ValueError("embedded null character")

    monkeypatch.setattr(fuzz, "codec_tries", lambda: [(100, breaks)])
    with pytest.raises(AssertionError, match="input 0 of seed 7 raised ValueError"):
        fuzz.fuzz_codec(10, seed=7)


def test_every_kind_of_input_is_refused_by_name_sooner_or_later() -> None:
    mutate = fuzz.Mutator(1)
    for _, attempt in fuzz.codec_tries():
        codes = set()
        for _ in range(200):
            try:
                attempt(mutate)
            except Fault as fault:
                codes.add(fault.code)
        assert codes, attempt.__name__

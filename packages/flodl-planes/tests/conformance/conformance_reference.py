"""What the averages ought to have been: worked out in float64 by plain torch from what the ranks had handed in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import conformance_ranks as ranks
import numpy as np
import pytest
import torch
from torch import nn

from flodl_planes.plane.layout import lay_out
from flodl_planes.rank.schema import slots_of, view_of

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12, torch.bfloat16: 2**-8, torch.float16: 2**-11}


def records(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """rank → what it wrote down, in order."""
    found: dict[int, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*-*.pt")):
        found.setdefault(int(path.name.split("-")[0]), []).append(torch.load(path, weights_only=False))
    return found


def deposits_of(found: dict[int, list[dict[str, Any]]]) -> dict[int, dict[int, dict[str, Any]]]:
    """round → rank → the deposit that went into it: the one before that round in the rank's own record, and for a rank
    that died in it its last.
    """
    numbers = sorted({r["round"].round for notes in found.values() for r in notes if "round" in r})
    into: dict[int, dict[int, dict[str, Any]]] = {}
    for rank, notes in found.items():
        last, rounds = None, iter(numbers[1:])  # round 0 takes nobody's work
        for note in notes:
            if note["kind"] == "deposit":
                if last is not None and last["window"] == note["window"]:  # a further piece of it
                    note["steps"] += last["steps"]
                last = note
            elif "round" in note and note["round"].round > 0:
                into.setdefault(next(rounds), {})[rank] = last  # type: ignore[assignment]
                last = None
        if last is not None:
            into.setdefault(next(rounds, -1), {})[rank] = last
    return into


def reference(name: str, weights: dict[int, float], states: dict[int, dict[str, Any]], leader: int) -> torch.Tensor:
    """The average of one tensor, in float64; what is no float comes from the leader."""
    if not states[leader][name].is_floating_point():
        return states[leader][name]
    total = torch.zeros_like(states[leader][name], dtype=torch.float64)
    for rank, weight in weights.items():
        total += weight * states[rank][name].double()
    return total


def close(name: str, got: torch.Tensor, wanted: torch.Tensor) -> None:
    if not got.is_floating_point():
        assert torch.equal(got, wanted), name
        return
    scale = wanted.abs().clamp(min=1.0)
    assert ((got.double() - wanted).abs() <= TOLERANCE[got.dtype] * scale).all(), name


def unpack(average: np.ndarray[Any, Any], like: dict[str, torch.Tensor], model: nn.Module) -> dict[str, torch.Tensor]:
    """Bytes in the live layout as tensors, under every name."""
    slots = slots_of(model)
    offsets = lay_out([slot.spec for slot in slots]).offsets
    found = {}
    for slot, offset in zip(slots, offsets, strict=True):
        for name in (slot.name, *slot.ties):
            found[name] = view_of(average, like[name], offset)
    return found


def check(folder: Path, *, model: Callable[[], nn.Module] = ranks.Everything) -> dict[str, int]:
    """Every average against the reference; how many there were of which kind."""
    found = records(folder)
    into = deposits_of(found)
    seen = {"average": 0, "corrected": 0, "weights": 0, "idle": 0}
    for notes in found.values():
        for note in notes:
            if "round" not in note or note["round"].round == 0:
                continue
            opened = note["round"]
            took = into[opened.round]
            steps = {rank: took[rank]["steps"] for rank in took if took[rank]["steps"] and str(rank) in opened.weights}
            if not opened.weights:
                continue
            if any(took[rank]["steps"] for rank in took):
                assert opened.weights == pytest.approx({str(r): n / sum(steps.values()) for r, n in steps.items()})
            weights = {int(rank): weight for rank, weight in opened.weights.items()}
            seen["weights"] += len(set(weights.values())) > 1
            seen["idle"] += len(weights) < len(took)
            states = {rank: took[rank]["state"] for rank in {*weights, opened.leader}}
            wanted = {name: reference(name, weights, states, opened.leader) for name in note["state"]}
            seen[note["kind"]] += 1
            if note["kind"] == "average":
                for name, tensor in note["state"].items():
                    close(name, tensor, wanted[name])
                continue
            average = unpack(note["average"], note["state"], model())
            for name, tensor in average.items():
                close(name, tensor, wanted[name])
            snapshot = took[_owner(found, note)]["state"]
            for name, tensor in note["state"].items():
                learned = note["before"][name].double() - snapshot[name].double()
                moved = wanted[name].double() + (0.0 if tensor.dtype is torch.bool else learned)
                close(name, tensor, moved if tensor.is_floating_point() else moved.to(tensor.dtype))
    return seen


def _owner(found: dict[int, list[dict[str, Any]]], note: dict[str, Any]) -> int:
    return next(rank for rank, notes in found.items() if any(other is note for other in notes))


def ends(folder: Path) -> list[dict[str, torch.Tensor]]:
    return [notes[-1]["state"] for notes in records(folder).values() if notes[-1]["kind"] == "end"]

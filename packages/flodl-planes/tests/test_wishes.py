"""The Trainer's arguments about steps, saves and failure: what they mean, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flodl_planes.rank.wishes import Conveniences, Safety
from flodl_wire.faults import Refused

PLAIN: dict[str, Any] = {
    "max_failure": None, "checkpoint_every": None, "resume": None, "stall_timeout": None, "nan": "stop",
    "callback_rank": None,
}  # fmt: skip


def read(**changed: Any) -> Safety:
    return Safety.read(**{**PLAIN, **changed})


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [
        ("max_failure", 2, 2), ("max_failure", "50%", 0.5), ("max_failure", "12.5 %", 0.125), ("max_failure", 1.0, 1.0),
        ("checkpoint_every", 2, 2), ("checkpoint_every", "300s", 300.0), ("checkpoint_every", "1.5 min", 90.0),
        ("checkpoint_every", "1h", 3600.0), ("resume", Path("runs/x"), "runs/x"), ("resume", "auto", "auto"),
        ("stall_timeout", 60, 60.0), ("nan", "skip", "skip"), ("callback_rank", 1, 1),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_understood(name: str, given: Any, meant: Any) -> None:
    found = getattr(read(**{name: given}), name)
    assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("max_failure", 0), ("max_failure", 0.0), ("max_failure", 1.5), ("max_failure", "0%"), ("max_failure", "half"),
        ("max_failure", True), ("max_failure", "120%"), ("checkpoint_every", 0), ("checkpoint_every", 2.5),
        ("checkpoint_every", "300"), ("checkpoint_every", "0s"), ("checkpoint_every", "-1s"), ("resume", ""),
        ("resume", True), ("stall_timeout", 0), ("stall_timeout", "60s"), ("nan", "ignore"), ("nan", None),
        ("callback_rank", -1), ("callback_rank", "fastest"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_name_with_a_way_out(name: str, given: Any) -> None:
    with pytest.raises(Refused) as caught:
        read(**{name: given})
    assert caught.value.what.startswith(f"cannot train with {name}=") and caught.value.fix


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("clip_norm", 0), ("clip_norm", "1"), ("accumulate", 0), ("accumulate", 1.5), ("amp", "fp8"),
        ("scheduler", 3), ("scheduler_by", "batch"), ("lr_scale_ratio", -1), ("lr_scale_ratio", None),
    ],
)  # fmt: skip
def test_so_are_the_conveniences(name: str, given: Any) -> None:
    with pytest.raises(Refused) as caught:
        Conveniences(**{name: given})
    assert caught.value.what.startswith(f"cannot train with {name}=") and caught.value.fix

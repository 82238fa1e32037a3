"""Wire and outer optimizer as they are asked for, and how each refusal reads."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_planes.rank.averaging import Averaging
from flodl_planes.rank.terms import Settings
from flodl_wire.faults import Refused


@pytest.mark.parametrize(
    ("asked", "argument"),
    [
        ({"wire": "fp8"}, "wire"),
        ({"wire": None}, "wire"),
        ({"outer": "adam"}, "outer"),
        ({"lr": 0.7}, "outer_lr"),
        ({"outer": "nesterov", "lr": 0}, "outer_lr"),
        ({"outer": "nesterov", "lr": "0.7"}, "outer_lr"),
        ({"outer": "slow_momentum", "momentum": 1.0}, "outer_momentum"),
        ({"outer": "slow_momentum", "momentum": -0.1}, "outer_momentum"),
        ({"outer": "nesterov", "momentum": float("nan")}, "outer_momentum"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_with_a_fix(asked: dict[str, Any], argument: str) -> None:
    with pytest.raises(Refused, match=f"cannot train with {argument}=") as refused:
        Averaging(**asked)
    assert refused.value.why and refused.value.fix


def test_defaults_are_their_authors_and_travel_in_full() -> None:
    assert Averaging().as_outer() == {}
    assert Averaging(outer="nesterov").as_outer() == {"kind": "nesterov", "lr": 0.7, "momentum": 0.9}
    asked = Averaging("bf16", "slow_momentum", momentum=0)
    assert asked.as_outer() == {"kind": "slow_momentum", "lr": 1.0, "momentum": 0.0}
    terms = Settings(32, 5, wire=asked.wire, outer=asked.as_outer()).terms("cpu_cadence", 100, False)
    assert (terms.wire, terms.outer) == ("bf16", asked.as_outer())

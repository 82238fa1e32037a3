"""How cards are named, in and out."""

from __future__ import annotations

import pytest

from flodl_ncclbuild import archs
from flodl_wire.faults import Refused


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("6.1;12.0", (61, 120)),
        ("12.0, 6.1", (61, 120)),
        ("sm61 sm_120", (61, 120)),
        ("61,120,61", (61, 120)),
        ("compute_90", (90,)),
        ("SM90", (90,)),
        ("8.6+PTX", (86,)),
        (" 7.5 ;", (75,)),
    ],
)
def test_every_usual_spelling_of_a_card_is_understood(text: str, cards: tuple[int, ...]) -> None:
    assert archs.parse(text) == cards


@pytest.mark.parametrize("text", ["", ";", "6", "6.1.0", "blackwell", "9.0a", "-61", "6.10", "٦.١"])
def test_what_is_no_card_is_a_usage_error_with_an_example(text: str) -> None:
    with pytest.raises(Refused) as caught:
        archs.parse(text)
    assert caught.value.exit_code == 2
    assert "e.g." in caught.value.fix


def test_an_amd_card_is_told_that_it_uses_another_library() -> None:
    with pytest.raises(Refused, match="RCCL"):
        archs.parse("gfx942")


def test_code_for_each_and_ptx_of_the_last() -> None:
    assert archs.gencode((61, 120)) == (
        "-gencode=arch=compute_61,code=sm_61 -gencode=arch=compute_120,code=sm_120 "
        "-gencode=arch=compute_120,code=compute_120"
    )
    assert archs.spelled((61, 120)) == "sm61-sm120"


def test_cards_that_cannot_be_built_are_named_with_those_that_can() -> None:
    with pytest.raises(Refused) as caught:
        archs.require((61, 75), frozenset({75, 80}), "nvcc 13.0", "another nvcc")
    assert caught.value.why == "nvcc 13.0 cannot build sm61; it can build sm75, sm80"

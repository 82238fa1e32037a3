"""Which CUDA a container gets, for the cards and the torch there are."""

from __future__ import annotations

import pytest

from flodl_ncclbuild import toolkits
from flodl_wire.faults import Refused


@pytest.mark.parametrize(
    ("archs", "torch", "cuda", "note"),
    [
        ((90,), "12.8", "12.8", ""),
        ((61, 120), "12.8", "12.8", ""),
        ((61, 120), "13.0", "12.9", "cannot build sm61; the driver of each host must be new enough for it"),
        ((61,), "12.6", "12.6", ""),
        ((120,), "12.6", "12.9", "cannot build sm120"),
        ((35, 80), "11.8", "11.8", ""),
        ((75, 120), "13.0", "13.0", ""),
        ((110,), "12.8", "13.0", "cannot build sm110; the driver"),
        ((75,), "13.2", "13.0", "for torch's CUDA 13.2 has no image"),
        ((75,), "12", "12.9", ""),
        ((61,), "13", "12.9", "cannot build sm61"),
        ((90,), None, "12.9", ""),
        ((88,), None, "13.0", ""),
        ((37,), None, "11.8", ""),
    ],
)
def test_torchs_own_cuda_where_it_can_else_the_nearest_that_can(
    archs: tuple[int, ...], torch: str | None, cuda: str, note: str
) -> None:
    choice = toolkits.choose(archs, torch=torch)
    assert choice.toolkit.cuda == cuda
    assert note in choice.note
    assert bool(note) == bool(choice.note)


def test_a_stated_cuda_is_an_order() -> None:
    assert toolkits.choose((90,), asked="12.4", torch="12.8").toolkit.image == "nvidia/cuda:12.4.1-devel-rockylinux8"
    with pytest.raises(Refused, match=r"CUDA 13\.0 cannot build sm61") as caught:
        toolkits.choose((61,), asked="13.0")
    assert "12.9" in caught.value.fix
    with pytest.raises(Refused, match=r"images for 11\.8, .*13\.0") as caught:
        toolkits.choose((61,), asked="10.2")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("archs", "why"),
    [
        ((35, 120), r"sm35 by CUDA 11\.8, sm120 by CUDA 12\.8 to 13\.0"),
        ((61, 110), r"sm61 by CUDA 11\.8 to 12\.9, sm110 by CUDA 13\.0"),
        ((75, 999), r"no CUDA toolkit known to this version builds sm999"),
    ],
)
def test_cards_that_no_toolkit_builds_together_are_refused_by_name(archs: tuple[int, ...], why: str) -> None:
    with pytest.raises(Refused, match=why) as caught:
        toolkits.choose(archs)
    assert "--archs" in caught.value.fix


def test_the_table_is_in_order_and_no_newer_toolkit_lost_a_card_and_found_it_again() -> None:
    numbers = [tuple(map(int, toolkit.cuda.split("."))) for toolkit in toolkits.TOOLKITS]
    assert numbers == sorted(numbers)
    for arch in set().union(*(toolkit.archs for toolkit in toolkits.TOOLKITS)):
        having = [arch in toolkit.archs for toolkit in toolkits.TOOLKITS]
        assert "".join("x" if have else "." for have in having).strip(".").count(".") == 0, arch

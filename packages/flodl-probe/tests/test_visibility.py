"""The masks, by the vendors' rules."""

from __future__ import annotations

import pytest

from flodl_probe import visibility
from flodl_probe.device import AMD, NVIDIA, Device


def cards(vendor: str = NVIDIA, count: int = 4) -> list[Device]:
    return [Device(index, vendor, uuid=f"GPU-{index}{index}aa-bb", name="X") for index in range(count)]


def seen(mask: str | None, vendor: str = NVIDIA, **env: str) -> list[int]:
    environment = dict(env) if mask is None else {"CUDA_VISIBLE_DEVICES": mask, **env}
    return [device.index for device in visibility.apply(cards(vendor), environment)[0]]


@pytest.mark.parametrize(
    ("mask", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("2,3", [2, 3]),
        ("3, 0", [3, 0]),
        ("", []),
        (" ", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("0,9,1", [0]),
        ("9999999999999999999999", []),
        ("GPU-22aa", [2]),
        ("gpu-33AA-bb,GPU-00aa-bb", [3, 0]),
        ("GPU-", []),
        ("GPU-77", []),
        ("1,1", [1]),
        ("1,,2", [1]),
        ("MIG-1/2/3", []),
        ("NoDevFiles", []),
        ("²", []),
    ],
)
def test_a_mask_leaves_what_cuda_would_leave(mask: str | None, indices: list[int]) -> None:
    assert seen(mask) == indices


def test_what_a_mask_hides_is_said() -> None:
    _, notes = visibility.apply(cards(), {"CUDA_VISIBLE_DEVICES": "2,9"})
    assert notes == [
        "CUDA_VISIBLE_DEVICES=2,9: '9' stands there and names no GPU of this box; what follows it is hidden",
        "CUDA_VISIBLE_DEVICES=2,9 leaves 1 of 4 GPUs visible",
    ]


def test_a_beginning_that_fits_two_cards_names_none() -> None:
    twins = [Device(0, NVIDIA, uuid="GPU-aaa1"), Device(1, NVIDIA, uuid="GPU-aaa2")]
    assert visibility.apply(twins, {"CUDA_VISIBLE_DEVICES": "GPU-aaa"})[0] == []


def test_unequal_cards_and_cudas_own_order_are_warned_of() -> None:
    unequal = [Device(0, NVIDIA, name="slow"), Device(1, NVIDIA, name="fast")]
    _, notes = visibility.apply(unequal, {"CUDA_VISIBLE_DEVICES": "0"})
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in notes[-1]
    _, notes = visibility.apply(unequal, {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert not any("ORDER" in note for note in notes)


def test_hip_counts_what_rocr_has_left() -> None:
    assert seen(None, AMD, ROCR_VISIBLE_DEVICES="1,2,3", HIP_VISIBLE_DEVICES="2,0") == [3, 1]
    assert seen(None, AMD, ROCR_VISIBLE_DEVICES="GPU-22aa", HIP_VISIBLE_DEVICES="0") == [2]
    assert seen("0", AMD, HIP_VISIBLE_DEVICES="1") == [1], "HIP's own name wins over CUDA's"
    assert seen("0", AMD) == [0]


def test_masks_of_the_other_vendor_do_not_count() -> None:
    assert seen(None, NVIDIA, HIP_VISIBLE_DEVICES="", ROCR_VISIBLE_DEVICES="") == [0, 1, 2, 3]


def test_no_cards_no_words() -> None:
    assert visibility.apply([], {"CUDA_VISIBLE_DEVICES": "7"}) == ([], [])

"""GPUs against what was asked for, against the bus, the driver library and torch; and how they are."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_probe.checks.deep import check_deep
from flodl_probe.checks.devices import check_devices, check_driver_agreement
from flodl_probe.checks.health import check_health, check_processes
from flodl_probe.checks.torch_fit import check_torch
from flodl_probe.facts import Box, BusCard, Deep, DeepDevice, Driver, Facts, Gpu, GpuProcess, TorchBuild
from flodl_probe.finding import Finding
from flodl_probe.question import Question


def facts(devices: str = "all", **more: Any) -> Facts:
    return Facts(Question(devices=devices), "here", **more)


def cards(count: int, **more: Any) -> list[Gpu]:
    return [Gpu(index, uuid=f"GPU-{index}", name="Card", arch="sm90", **more) for index in range(count)]


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


def test_a_healthy_box_is_green_everywhere() -> None:
    box = facts(gpus=cards(2, ecc_uncorrected=0, remap_pending=False, mig=False), driver=Driver("550.1", "12.8", 2))
    for check in (check_devices, check_driver_agreement, check_health, check_processes):
        assert only(check(box)).level == "ok"


@pytest.mark.parametrize(("role", "words"), [("alone", "--devices cpu:2"), ("worker", "local_devices: cpu:2")])
def test_no_device_is_an_error_that_shows_the_way_on(role: Any, words: str) -> None:
    found = only(check_devices(Facts(Question(role=role))))
    assert found.level == "error" and words in found.fix


def test_the_processor_is_enough_when_it_is_named() -> None:
    assert only(check_devices(facts("cpu:2", box=Box(cores=4)))).level == "ok"
    assert only(check_devices(facts("cpu:9", box=Box(cores=4)))).level == "warning"


def test_an_index_that_is_not_there_is_named_with_those_that_are() -> None:
    found = check_devices(facts("0,5", gpus=cards(2)))[0]
    assert (found.level, found.what, found.why) == ("error", "GPU 5 is not here", "visible are 0, 1")


def test_a_spec_that_nobody_can_read_is_a_finding_and_no_crash() -> None:
    box = facts("two", gpus=cards(2))
    assert only(check_devices(box)).level == "error"
    assert check_driver_agreement(box) == [] and check_health(box) == []


def test_a_card_on_the_bus_that_no_driver_lists_is_told_from_a_box_without_one() -> None:
    found = only(check_devices(facts(cards=[BusCard("0000:01:00.0", "nvidia", "nouveau")], box=Box(manager="dnf"))))
    assert "nouveau" in found.why and "dnf" in found.fix
    contained = facts(cards=[BusCard("0000:01:00.0", "nvidia")], box=Box(container="docker"))
    assert "--gpus all" in only(check_devices(contained)).fix
    amd = only(check_devices(facts(cards=[BusCard("0000:03:00.0", "amd")])))
    assert "KFD" in amd.why and "amdgpu" in amd.fix


def test_what_the_drivers_said_is_the_reason() -> None:
    found = only(check_devices(facts(gpu_notes=["nvidia-smi failed: the NVIDIA driver is not loaded"])))
    assert "not loaded" in found.why


def test_a_mask_and_a_graphics_unit_beside_a_card_are_everyday() -> None:
    notes = [
        "CUDA_VISIBLE_DEVICES=0 leaves 1 of 2 GPUs visible",
        "beside the NVIDIA GPUs this box has raphael: left out",
    ]
    assert {found.level for found in check_devices(facts(gpus=cards(1), gpu_notes=notes))} == {"ok"}
    odd = check_devices(facts(gpus=cards(1), gpu_notes=["nvidia-smi says: WARNING: infoROM is corrupted"]))
    assert odd[0].level == "warning"


def test_slices_of_a_card_are_refused() -> None:
    assert check_devices(facts(gpus=cards(1, mig=True)))[0].level == "error"


def test_unified_memory_has_no_size_and_that_is_no_finding() -> None:
    box = facts(
        gpus=[Gpu(0, name="GB10", arch="sm121", memory_bytes=None, used_bytes=None)], driver=Driver("580", "13.0", 1)
    )
    assert {found.level for found in [*check_devices(box), *check_health(box), *check_driver_agreement(box)]} == {"ok"}


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (Driver("550", "12.8", 1), "torch will see 1 GPUs, the driver lists 2"),
        (Driver("550", "12.8", None), "libcuda is not here"),
        (Driver("550", "12.8", 0, "fabricmanager must run"), "fabricmanager"),
    ],
)
def test_a_driver_library_that_sees_other_than_the_driver_is_an_error(driver: Driver, words: str) -> None:
    found = check_driver_agreement(facts(gpus=cards(2), driver=driver))[0]
    assert found.level == "error" and words in found.sentence()


def test_a_driver_library_that_sees_cards_where_no_tool_does_is_never_green() -> None:
    assert only(check_devices(facts(driver=Driver(cuda_devices=1)))).level == "error"


def test_a_card_that_fell_off_is_a_warning_but_not_in_a_container_that_shares_the_bus() -> None:
    bus = [BusCard(f"0000:0{n}:00.0", "nvidia", "nvidia") for n in range(2)]
    broken = facts(gpus=cards(1), driver=Driver("550", "12.8", 1), cards=bus)
    assert check_driver_agreement(broken)[0].level == "warning"
    broken.box.container = "docker"
    assert check_driver_agreement(broken)[0].level == "ok"


def test_torch_and_driver_must_have_the_same_view_by_metadata_already() -> None:
    blind = TorchBuild("2.13.0+cpu", "/site")
    found = only(check_torch(facts(gpus=cards(1), torch=blind)))
    assert (found.level, found.what) == ("error", "torch 2.13.0+cpu sees no GPU here")
    amd = [Gpu(0, "amd", arch="gfx942")]
    assert only(check_torch(facts(gpus=amd, torch=TorchBuild("2.13.0+cu128", "/s", cuda="12.8")))).level == "error"
    assert only(check_torch(facts(gpus=amd, torch=TorchBuild("2.13.0+rocm7", "/s", hip="7.0")))).level == "ok"


@pytest.mark.parametrize(("listed", "seen"), [(0, 1), (2, 1), (1, 0)])
def test_torch_s_own_view_against_the_drivers_is_an_error_in_both_directions(listed: int, seen: int) -> None:
    deep = Deep("2.13.0", [DeepDevice(n, "Card", True) for n in range(seen)])
    found = only(check_deep(facts(gpus=cards(listed), deep=deep)))
    assert found.level == "error" and f"torch sees {seen} GPUs" in found.what
    assert only(check_deep(facts(gpus=cards(1), deep=Deep("2.13.0", [DeepDevice(0, "Card", True)])))).level == "ok"


def test_a_kernel_that_fails_and_a_torch_that_does_not_start_are_said_with_their_words() -> None:
    wrong = Deep("2.13.0", [DeepDevice(0, "Card", False, "no kernel image is available")])
    assert "no kernel image" in check_deep(facts(gpus=cards(1), deep=wrong))[0].why
    assert "libcudart" in only(check_deep(facts(deep=Deep(failure="ImportError: libcudart.so.12")))).why


def test_errors_heat_and_strangers_on_the_cards_are_found() -> None:
    sick = cards(1, ecc_uncorrected=3, remap_pending=True, throttle=["too hot (hardware)"])
    assert [found.level for found in check_health(facts(gpus=sick))] == ["error", "warning", "warning"]
    busy = [GpuProcess("GPU-0", 41, "python", 3 << 30), GpuProcess("GPU-7", 42)]
    found = only(check_processes(facts(gpus=cards(1), processes=busy)))
    assert (found.level, found.why) == ("warning", "python (pid 41, 3072 MiB)")


def test_cards_that_are_not_offered_are_nobody_s_business() -> None:
    sick = [Gpu(0, uuid="GPU-0"), Gpu(1, uuid="GPU-1", ecc_uncorrected=9)]
    assert {found.level for found in check_health(facts("0", gpus=sick))} == {"ok"}
    assert check_health(facts("cpu:1", gpus=sick)) == []

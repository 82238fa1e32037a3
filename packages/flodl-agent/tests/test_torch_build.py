"""Which build of torch a name or a box's devices mean, and what pip's words mean."""

from __future__ import annotations

import importlib.util
import subprocess

import pytest

from flodl_agent import torch_pip
from flodl_agent.torch_build import Build, for_devices, label_of, parse, pip_words
from flodl_wire.faults import Refused
from flodl_wire.join_messages import DeviceOffer


def offers(*archs: str, kind: str = "cuda") -> list[DeviceOffer]:
    return [DeviceOffer(kind, index, arch=arch) for index, arch in enumerate(archs)]


@pytest.mark.parametrize(
    ("archs", "driver", "build"),
    [
        (("sm90",), "12.8", "cu128"),
        (("sm90", "sm120"), "13.0", "cu130"),
        (("sm61",), "12.8", "cu126"),
        (("sm61", "sm90"), "13.0", "cu126"),
        (("sm120",), "", "cu128"),
        (("",), "12.2", "cu128"),
    ],
)
def test_the_devices_and_the_driver_choose_the_build(archs: tuple[str, ...], driver: str, build: str) -> None:
    assert for_devices(offers(*archs), driver, "") == Build(build)


def test_a_box_without_gpus_takes_the_cpu_build_and_one_with_amd_that_of_its_rocm() -> None:
    assert for_devices([DeviceOffer("cpu", 0)], "", "") == for_devices([], "", "") == Build("cpu")
    assert for_devices(offers("gfx942", kind="rocm"), "", "7.0.1") == Build("rocm7.0")
    assert for_devices(offers("gfx942", kind="rocm"), "", "") == Build("rocm6.4")


@pytest.mark.parametrize(
    ("devices", "driver", "said"),
    [
        (offers("sm61", "sm120"), "13.0", "no published build has code for both sm_61 and sm_120"),
        (offers("sm70"), "11.8", "its driver runs CUDA up to 11.8"),
        (offers("sm90") + offers("gfx942", kind="rocm"), "12.8", "cards of two vendors"),
    ],
)
def test_what_no_build_covers_is_refused(devices: list[DeviceOffer], driver: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        for_devices(devices, driver, "")


def test_a_build_goes_by_its_label_and_knows_its_index() -> None:
    assert parse("cu128") == parse("precompiled/cu128") == Build("cu128")
    assert Build("cu128").index("https://torch/whl/") == "https://torch/whl/cu128"
    assert Build("rocm70").index("https://torch/whl") == "https://torch/whl/rocm7.0"
    assert Build("cpu").index("") == ""
    for name in ("builds/sm61", "cuda", "cu12", "cpu2", "../cpu", "", "rocm"):
        with pytest.raises(Refused):
            parse(name)


@pytest.mark.parametrize(
    ("label", "cuda", "hip", "fits"),
    [
        ("cpu", None, None, True),
        ("cpu", "13.0", None, False),
        ("cu128", "12.8", None, True),
        ("cu128", "13.0", None, False),
        ("rocm6.4", None, "6.4.43482-0f2d60242", True),
        ("rocm64", None, "6.4.43482-0f2d60242", True),
        ("rocm6.4", None, "7.0.51831", False),
        ("rocm6.4", None, None, False),
    ],
)
def test_a_torch_is_the_build_that_it_says_it_is(label: str, cuda: str | None, hip: str | None, fits: bool) -> None:
    assert Build(label).is_(label_of(cuda, hip)) is fits


def test_pip_is_told_the_version_and_where_to_look() -> None:
    assert pip_words("2.13.0", "https://i", None) == ["torch==2.13.0", "--index-url", "https://i"]
    assert pip_words("", None, "/wheels") == ["torch", "--find-links", "/wheels"]


def test_an_environment_without_pip_takes_the_one_that_python_brings_along(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else known(name))
    try:
        command = torch_pip._command("cannot")
    except Refused as fault:
        assert "there is no pip for" in str(fault) and "apt install python3-venv" in fault.fix
        return
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pip ") and ".whl" in done.stdout


@pytest.mark.parametrize(
    ("said", "family", "code"),
    [
        (
            ["ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"],
            "broken",
            "no-space",
        ),
        (
            [
                "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('…')'",
                "ERROR: No matching distribution found for torch==9",
            ],
            "transient",
            "no-index",
        ),
        (["ERROR: No matching distribution found for torch==9"], "refused", "no-wheel"),
        (["ERROR: 503 Server Error: Service Unavailable for url: https://i"], "transient", "no-index"),
        (["ERROR: something new"], "broken", "pip-failed"),
        ([], "broken", "pip-failed"),
    ],
)
def test_pips_words_say_who_can_mend_it(said: list[str], family: str, code: str) -> None:
    fault = torch_pip.failed("cannot", said, 1)
    assert (fault.family, fault.code) == (family, code)


@pytest.mark.parametrize(
    ("version", "rest", "label"),
    [
        ("2.13.0+cpu", {}, "cpu"),
        ("2.13.0+cu128", {"nvidia-cuda-runtime-cu12": "12.8.90"}, "cu128"),
        ("2.13.0+rocm6.4", {}, "rocm6.4"),
        ("2.14.1", {"cuda-toolkit": "13.0.3.0", "sympy": "1.14"}, "cu130"),
        ("2.8.0", {"nvidia-cuda-runtime-cu12": "12.8.90"}, "cu128"),
        ("2.14.1", {"sympy": "1.14"}, ""),
        ("0.0.1+standin", {}, ""),
    ],
)
def test_what_build_pip_would_take_shows_before_it_is_fetched(version: str, rest: dict[str, str], label: str) -> None:
    assert torch_pip.Found(version, "file:///w/torch.whl", rest).label == label

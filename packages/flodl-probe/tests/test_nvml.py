"""NVML answers, refuses, crashes and hangs; the library here is a stand-in that fills the same ctypes buffers."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any

import pytest

from flodl_probe import nvml


class Library:
    """Two cards. `broken` maps a function to the code it returns, or to something to do instead."""

    def __init__(self, **broken: Any) -> None:
        self.broken = broken

    def __getattr__(self, name: str) -> Any:
        if name == self.broken.get("lacks"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            code = self.broken.get(name, 0)
            if callable(code):
                code()
                return 0
            if code:
                return int(code)
            targets = [getattr(argument, "_obj", argument) for argument in arguments]
            self._fill(name, targets)
            return 0

        return call

    def _fill(self, name: str, targets: list[Any]) -> None:
        if name == "nvmlDeviceGetCount_v2":
            targets[0].value = 2
        elif name == "nvmlDeviceGetHandleByIndex_v2":
            targets[1].value = 100 + targets[0].value
        elif name == "nvmlDeviceGetName":
            targets[1].value = b"NVIDIA H200"
        elif name == "nvmlDeviceGetUUID":
            targets[1].value = f"GPU-{targets[0].value}".encode()
        elif name == "nvmlDeviceGetPciInfo_v3":
            targets[1].bus_id = f"00000000:{targets[0].value - 99:02X}:00.0".encode()
        elif name == "nvmlDeviceGetCudaComputeCapability":
            targets[1].value, targets[2].value = 9, 0
        elif name == "nvmlDeviceGetMemoryInfo":
            targets[1].total = 141 << 30


def ask(**broken: Any) -> tuple[list[dict[str, object]], list[str]]:
    library = Library(**broken)
    answer = nvml.query(lambda: library)  # type: ignore[arg-type,return-value]
    assert answer is not None
    return [device.as_dict() for device in answer[0]], answer[1]


def test_every_card_is_listed_with_what_it_tells() -> None:
    devices, notes = ask()
    assert notes == []
    assert devices[1] == {
        "index": 1,
        "uuid": "GPU-101",
        "pci": "0000:02:00.0",
        "name": "NVIDIA H200",
        "arch": "sm90",
        "memory_bytes": 141 << 30,
        "vendor": "nvidia",
    }


@pytest.mark.parametrize(
    ("function", "key"),
    [
        ("nvmlDeviceGetName", "name"),
        ("nvmlDeviceGetUUID", "uuid"),
        ("nvmlDeviceGetPciInfo_v3", "pci"),
        ("nvmlDeviceGetCudaComputeCapability", "arch"),
        ("nvmlDeviceGetMemoryInfo", "memory_bytes"),
    ],
)
def test_a_question_a_card_does_not_answer_leaves_none(function: str, key: str) -> None:
    devices, _ = ask(**{function: 3})
    assert len(devices) == 2
    assert devices[0][key] is None


def test_a_library_that_lacks_a_function_still_lists_the_cards() -> None:
    devices, _ = ask(lacks="nvmlDeviceGetPciInfo_v3")
    assert [device["pci"] for device in devices] == [None, None]


def test_a_card_that_fell_off_the_bus_is_said() -> None:
    devices, notes = ask(nvmlDeviceGetHandleByIndex_v2=15)
    assert devices == []
    assert notes == [f"GPU {index} cannot be asked: a GPU has fallen off the bus" for index in (0, 1)]


@pytest.mark.parametrize(
    ("code", "words"), [(9, "driver is not loaded"), (18, "different versions"), (999, "error 999")]
)
def test_a_library_that_will_not_start_is_explained(code: int, words: str) -> None:
    devices, notes = ask(nvmlInit_v2=code)
    assert devices == []
    assert words in notes[0]


def test_a_crash_of_the_driver_is_a_note() -> None:
    devices, notes = ask(nvmlInit_v2=lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert devices == []
    assert notes == ["NVML was ended by signal 9 while it was asked"]


def test_a_hanging_driver_is_left_alone_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "PATIENCE", 1.0)
    devices, notes = ask(nvmlInit_v2=signal.pause)
    assert devices == []
    assert "gave no answer" in notes[0]


def test_an_error_of_our_own_in_the_child_is_a_note_too() -> None:
    def fail() -> None:
        raise ValueError

    assert ask(nvmlInit_v2=fail) == ([], ["NVML failed: ValueError"])


def test_where_there_is_no_library_there_is_no_answer() -> None:
    assert nvml.query(lambda: None) is None


def test_the_struct_is_as_large_as_nvml_writes() -> None:
    assert ctypes.sizeof(nvml._PciInfo) == 68

"""What drivers print, and what becomes of it."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from flodl_probe import nvidia_smi

TWO = """\
0, GPU-6a1b2c3d-0000-1111-2222-333344445555, 00000000:01:00.0, NVIDIA GeForce RTX 5060 Ti, 12.0, 16311
1, GPU-7a1b2c3d-0000-1111-2222-333344445555, 00000000:0A:00.0, NVIDIA GeForce GTX 1060 6GB, 6.1, 6144
"""


def fake(folder: Path, script: str) -> None:
    """A `nvidia-smi` in `folder` that runs the Python `script`."""
    folder.mkdir(exist_ok=True)
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!{sys.executable} -S\nimport sys, os, signal\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_a_table_is_read_whole() -> None:
    devices, notes = nvidia_smi.parse(TWO)
    assert notes == []
    assert devices[0].as_dict() == {
        "index": 0,
        "uuid": "GPU-6a1b2c3d-0000-1111-2222-333344445555",
        "pci": "0000:01:00.0",
        "name": "NVIDIA GeForce RTX 5060 Ti",
        "arch": "sm120",
        "memory_bytes": 16311 << 20,
        "vendor": "nvidia",
    }
    assert (devices[1].pci, devices[1].arch, devices[1].label()) == (
        "0000:0a:00.0",
        "sm61",
        "NVIDIA GeForce GTX 1060 6GB (6GB, sm61)",
    )


@pytest.mark.parametrize(
    "cell", ["[Not Supported]", "[N/A]", "N/A", "[Unknown Error]", "", "[Insufficient Permissions]"]
)
def test_what_a_card_does_not_tell_is_none(cell: str) -> None:
    devices, notes = nvidia_smi.parse(f"0, {cell}, {cell}, {cell}, {cell}, {cell}\n")
    assert notes == []
    assert devices[0].as_dict() == {
        "index": 0,
        "uuid": None,
        "pci": None,
        "name": None,
        "arch": None,
        "memory_bytes": None,
        "vendor": "nvidia",
    }


def test_warnings_between_rows_become_notes_and_cost_no_card() -> None:
    text = "WARNING: infoROM is corrupted at gpu 0000:01:00.0\n" + TWO + "\nSome other words, 1, 2, 3, 4, 5\n"
    devices, notes = nvidia_smi.parse(text)
    assert [device.index for device in devices] == [0, 1]
    assert len(notes) == 2
    assert "infoROM" in notes[0]


@pytest.mark.parametrize(
    "row",
    [
        "x, GPU-1, 00000000:01:00.0, A, 9.0, 1",
        "-1, GPU-1, 00000000:01:00.0, A, 9.0, 1",
        "99999999999999999999, GPU-1, 00000000:01:00.0, A, 9.0, 1",
        "0, GPU-1, somewhere, A, 9.0, 1",
        "0, GPU-1",
        "²,GPU-1, 00000000:01:00.0, A, 9.0, 1",
        '0, "unclosed, 1, 2, 3, 4',
        "\x00",
    ],
)
def test_a_row_that_is_none_is_a_note(row: str) -> None:
    devices, notes = nvidia_smi.parse(row)
    assert devices == []
    assert len(notes) == 1


def test_a_name_with_commas_keeps_them() -> None:
    devices, _ = nvidia_smi.parse("3, GPU-1, 00000001:81:00.0, Brand, Inc. X1, 9.0, 1024\n")
    assert (devices[0].name, devices[0].arch, devices[0].pci) == ("Brand, Inc. X1", "sm90", "0001:81:00.0")


def test_rows_come_in_the_order_of_their_indices_and_twice_is_said() -> None:
    rows = TWO.splitlines()
    devices, notes = nvidia_smi.parse("\n".join([rows[1], rows[0], rows[0]]))
    assert [device.index for device in devices] == [0, 1]
    assert notes == ["nvidia-smi lists GPU 0 twice"]


def test_a_flood_of_words_is_cut() -> None:
    _, notes = nvidia_smi.parse("words\n" * 500)
    assert len(notes) == 6
    assert notes[-1] == "nvidia-smi says 495 more lines"


def test_the_tool_on_path_is_asked_for_these_fields(bin_folder: Path) -> None:
    fake(
        bin_folder,
        f"assert sys.argv[1] == '--query-gpu={','.join(nvidia_smi.FIELDS)}', sys.argv\nprint({TWO!r}, end='')",
    )
    devices, notes = nvidia_smi.query()
    assert [device.index for device in devices] == [0, 1]
    assert notes == []


def test_an_older_driver_is_asked_without_the_field_it_does_not_know(bin_folder: Path) -> None:
    fake(
        bin_folder,
        "if 'compute_cap' in sys.argv[1]:\n"
        "    print('Field \"compute_cap\" is not a valid field to query.'); sys.exit(2)\n"
        "print('0, GPU-1, 00000000:01:00.0, Old, 1024')",
    )
    devices, notes = nvidia_smi.query()
    assert notes == []
    assert (devices[0].name, devices[0].arch, devices[0].memory_bytes) == ("Old", None, 1 << 30)


@pytest.mark.parametrize(
    ("code", "words"),
    [(9, "driver is not loaded"), (18, "different versions"), (77, "exit code 77"), (15, "fallen off")],
)
def test_a_failing_tool_is_explained(bin_folder: Path, code: int, words: str) -> None:
    fake(bin_folder, f"print('NVIDIA-SMI has failed because of reasons'); sys.exit({code})")
    devices, notes = nvidia_smi.query()
    assert devices == []
    assert words in notes[0]
    assert "reasons" in notes[1]


def test_no_device_is_an_answer_and_no_finding(bin_folder: Path) -> None:
    fake(bin_folder, "print('No devices were found'); sys.exit(6)")
    assert nvidia_smi.query() == ([], [])


def test_rows_before_a_failure_are_kept(bin_folder: Path) -> None:
    fake(bin_folder, f"print({TWO!r}, end=''); sys.exit(14)")
    devices, notes = nvidia_smi.query()
    assert len(devices) == 2
    assert "infoROM" in notes[0]


def test_a_tool_that_dies_by_a_signal_is_said(bin_folder: Path) -> None:
    fake(bin_folder, "os.kill(os.getpid(), signal.SIGSEGV)")
    devices, notes = nvidia_smi.query()
    assert devices == []
    assert notes == ["nvidia-smi failed: it was ended by signal 11"]


def test_a_tool_that_hangs_is_left_alone_after_a_while(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_smi, "PATIENCE", 1.0)
    fake(bin_folder, "signal.pause()")
    devices, notes = nvidia_smi.query()
    assert devices == []
    assert "gave no answer" in notes[0]


def test_output_that_is_no_text_is_survived(bin_folder: Path) -> None:
    fake(bin_folder, "sys.stdout.buffer.write(bytes(range(256)) * 50)")
    devices, notes = nvidia_smi.query()
    assert devices == []
    assert notes


def test_a_file_that_cannot_run_is_said(bin_folder: Path) -> None:
    fake(bin_folder, "")
    (bin_folder / "nvidia-smi").write_bytes(b"\x7fELF nonsense")
    devices, notes = nvidia_smi.query()
    assert devices == []
    assert "cannot be started" in notes[0]


def test_a_tool_off_path_is_found_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path / "wsl", f"print({TWO!r}, end='')")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(nvidia_smi, "PLACES", (str(tmp_path / "wsl"),))
    devices, notes = nvidia_smi.query()
    assert len(devices) == 2
    assert "not on PATH" in notes[0]


def test_a_box_without_the_tool_has_nothing_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvidia_smi, "PLACES", ())
    assert nvidia_smi.query() == ([], [])
